-- +goose Up
-- What can be sold. available is what the movements add up to, and never negative.
CREATE TABLE IF NOT EXISTS stock (
  sku VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  title VARCHAR(200) NOT NULL,
  unit_price BIGINT NOT NULL,
  currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  available BIGINT NOT NULL,
  version BIGINT NOT NULL,
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (sku),
  CONSTRAINT ck_stock_available CHECK (available >= 0),
  CONSTRAINT ck_stock_price CHECK (unit_price >= 1 AND unit_price <= 10000000000),
  CONSTRAINT ck_stock_version CHECK (version > 0)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE stock;
