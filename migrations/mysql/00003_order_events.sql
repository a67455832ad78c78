-- +goose Up
-- The history of an order: one row per change, written in the change's transaction. seq has no gap.
CREATE TABLE IF NOT EXISTS order_events (
  order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seq BIGINT NOT NULL,
  event VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  from_status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  to_status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  actor VARCHAR(80) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  cause VARCHAR(160) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  detail VARCHAR(1000) NOT NULL,
  at DATETIME(6) NOT NULL,
  PRIMARY KEY (order_no, seq),
  CONSTRAINT ck_order_events_seq CHECK (seq > 0)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE order_events;
