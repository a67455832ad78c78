-- +goose Up
-- The history of an order: one row per change, written in the change's transaction. seq has no gap.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE order_events (
  order_no VARCHAR(32) NOT NULL CHECK (length(order_no) <= 32),
  seq BIGINT NOT NULL CHECK (typeof(seq) = 'integer'),
  event VARCHAR(32) NOT NULL CHECK (length(event) <= 32),
  from_status VARCHAR(16) NOT NULL CHECK (length(from_status) <= 16),
  to_status VARCHAR(16) NOT NULL CHECK (length(to_status) <= 16),
  actor VARCHAR(80) NOT NULL CHECK (length(actor) <= 80),
  cause VARCHAR(160) NOT NULL CHECK (length(cause) <= 160),
  detail VARCHAR(1000) NOT NULL CHECK (length(detail) <= 1000),
  at DATETIME NOT NULL CHECK (typeof(at) = 'integer'),
  PRIMARY KEY (order_no, seq),
  CONSTRAINT ck_order_events_seq CHECK (seq > 0)
);

-- +goose Down
DROP TABLE order_events;
