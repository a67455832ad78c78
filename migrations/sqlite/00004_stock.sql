-- +goose Up
-- What can be sold. available is what the movements add up to, and never negative.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE stock (
  sku VARCHAR(64) NOT NULL CHECK (length(sku) <= 64),
  title VARCHAR(200) NOT NULL CHECK (length(title) <= 200),
  unit_price BIGINT NOT NULL CHECK (typeof(unit_price) = 'integer'),
  currency VARCHAR(3) NOT NULL CHECK (length(currency) <= 3),
  available BIGINT NOT NULL CHECK (typeof(available) = 'integer'),
  version BIGINT NOT NULL CHECK (typeof(version) = 'integer'),
  created_at DATETIME NOT NULL CHECK (typeof(created_at) = 'integer'),
  updated_at DATETIME NOT NULL CHECK (typeof(updated_at) = 'integer'),
  PRIMARY KEY (sku),
  CONSTRAINT ck_stock_available CHECK (available >= 0),
  CONSTRAINT ck_stock_price CHECK (unit_price >= 1 AND unit_price <= 10000000000),
  CONSTRAINT ck_stock_version CHECK (version > 0)
);

-- +goose Down
DROP TABLE stock;
