-- +goose Up
-- What a user's Idempotency-Key stands for; inserted in the transaction that creates the order.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE idempotency_keys (
  user_id VARCHAR(64) NOT NULL CHECK (length(user_id) <= 64),
  idempotency_key VARCHAR(128) NOT NULL CHECK (length(idempotency_key) <= 128),
  order_no VARCHAR(32) NOT NULL CHECK (length(order_no) <= 32),
  fingerprint VARCHAR(64) NOT NULL CHECK (length(fingerprint) <= 64),
  created_at DATETIME NOT NULL CHECK (typeof(created_at) = 'integer'),
  expires_at DATETIME NOT NULL CHECK (typeof(expires_at) = 'integer'),
  PRIMARY KEY (user_id, idempotency_key)
);
CREATE INDEX ix_idempotency_keys_expiry ON idempotency_keys (expires_at);

-- +goose Down
DROP TABLE idempotency_keys;
