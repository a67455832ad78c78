-- +goose Up
-- Every change of stock.available; ref is an order_no or an adjustment_no. A movement happens once.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE stock_movements (
  sku VARCHAR(64) NOT NULL CHECK (length(sku) <= 64),
  kind VARCHAR(16) NOT NULL CHECK (length(kind) <= 16),
  ref VARCHAR(32) NOT NULL CHECK (length(ref) <= 32),
  delta BIGINT NOT NULL CHECK (typeof(delta) = 'integer'),
  reason VARCHAR(500) NOT NULL CHECK (length(reason) <= 500),
  at DATETIME NOT NULL CHECK (typeof(at) = 'integer'),
  PRIMARY KEY (sku, kind, ref),
  CONSTRAINT ck_stock_movements_kind CHECK (kind IN ('OPENING', 'RESERVE', 'RELEASE', 'RETURN', 'ADJUST')),
  CONSTRAINT ck_stock_movements_delta CHECK ((kind = 'RESERVE' AND delta < 0) OR (kind IN ('RELEASE', 'RETURN') AND delta > 0) OR (kind = 'OPENING' AND delta >= 0) OR kind = 'ADJUST')
);
CREATE INDEX ix_stock_movements_ref ON stock_movements (ref);

-- +goose Down
DROP TABLE stock_movements;
