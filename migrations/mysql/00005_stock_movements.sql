-- +goose Up
-- Every change of stock.available; ref is an order_no or an adjustment_no. A movement happens once.
CREATE TABLE IF NOT EXISTS stock_movements (
  sku VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  ref VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  delta BIGINT NOT NULL,
  reason VARCHAR(500) NOT NULL,
  at DATETIME(6) NOT NULL,
  PRIMARY KEY (sku, kind, ref),
  KEY ix_stock_movements_ref (ref),
  CONSTRAINT ck_stock_movements_kind CHECK (kind IN ('OPENING', 'RESERVE', 'RELEASE', 'RETURN', 'ADJUST')),
  CONSTRAINT ck_stock_movements_delta CHECK ((kind = 'RESERVE' AND delta < 0) OR (kind IN ('RELEASE', 'RETURN') AND delta > 0) OR (kind = 'OPENING' AND delta >= 0) OR kind = 'ADJUST')
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE stock_movements;
