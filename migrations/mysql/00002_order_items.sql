-- +goose Up
-- The lines of an order, with the title and price of the moment it was placed.
CREATE TABLE IF NOT EXISTS order_items (
  order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  sku VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  title VARCHAR(200) NOT NULL,
  quantity BIGINT NOT NULL,
  unit_price BIGINT NOT NULL,
  amount BIGINT NOT NULL,
  PRIMARY KEY (order_no, sku),
  CONSTRAINT ck_order_items_quantity CHECK (quantity >= 1 AND quantity <= 9999),
  CONSTRAINT ck_order_items_amount CHECK (unit_price > 0 AND amount = quantity * unit_price)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE order_items;
