-- +goose Up
-- The lines of an order, with the title and price of the moment it was placed.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE order_items (
  order_no VARCHAR(32) NOT NULL CHECK (length(order_no) <= 32),
  sku VARCHAR(64) NOT NULL CHECK (length(sku) <= 64),
  title VARCHAR(200) NOT NULL CHECK (length(title) <= 200),
  quantity BIGINT NOT NULL CHECK (typeof(quantity) = 'integer'),
  unit_price BIGINT NOT NULL CHECK (typeof(unit_price) = 'integer'),
  amount BIGINT NOT NULL CHECK (typeof(amount) = 'integer'),
  PRIMARY KEY (order_no, sku),
  CONSTRAINT ck_order_items_quantity CHECK (quantity >= 1 AND quantity <= 9999),
  CONSTRAINT ck_order_items_amount CHECK (unit_price > 0 AND amount = quantity * unit_price)
);

-- +goose Down
DROP TABLE order_items;
