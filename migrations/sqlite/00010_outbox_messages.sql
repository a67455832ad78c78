-- +goose Up
-- Messages to publish, written in the transaction of the event they tell of.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE outbox_messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  order_no VARCHAR(32) NOT NULL CHECK (length(order_no) <= 32),
  seq BIGINT NOT NULL CHECK (typeof(seq) = 'integer'),
  event VARCHAR(64) NOT NULL CHECK (length(event) <= 64),
  payload TEXT NOT NULL,
  created_at DATETIME NOT NULL CHECK (typeof(created_at) = 'integer'),
  published_at DATETIME NULL CHECK (typeof(published_at) IN ('integer', 'null')),
  attempts BIGINT NOT NULL DEFAULT 0 CHECK (typeof(attempts) = 'integer'),
  lease_owner BIGINT NOT NULL DEFAULT 0 CHECK (typeof(lease_owner) = 'integer'),
  lease_until DATETIME NOT NULL DEFAULT 0 CHECK (typeof(lease_until) = 'integer'),
  CONSTRAINT uk_outbox_order UNIQUE (order_no, seq)
);
CREATE INDEX ix_outbox_pending ON outbox_messages (published_at, id);

-- +goose Down
DROP TABLE outbox_messages;
