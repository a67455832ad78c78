-- +goose Up
-- One row per order_no. Amounts are minor units of currency, times UTC.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  order_no VARCHAR(32) NOT NULL CHECK (length(order_no) <= 32),
  user_id VARCHAR(64) NOT NULL CHECK (length(user_id) <= 64),
  status VARCHAR(16) NOT NULL CHECK (length(status) <= 16),
  fingerprint VARCHAR(64) NOT NULL CHECK (length(fingerprint) <= 64),
  gateway VARCHAR(32) NOT NULL CHECK (length(gateway) <= 32),
  currency VARCHAR(3) NOT NULL CHECK (length(currency) <= 3),
  amount BIGINT NOT NULL CHECK (typeof(amount) = 'integer'),
  paid_amount BIGINT NOT NULL DEFAULT 0 CHECK (typeof(paid_amount) = 'integer'),
  refunded_amount BIGINT NOT NULL DEFAULT 0 CHECK (typeof(refunded_amount) = 'integer'),
  attempts BIGINT NOT NULL DEFAULT 0 CHECK (typeof(attempts) = 'integer'),
  note VARCHAR(500) NOT NULL CHECK (length(note) <= 500),
  cancel_reason VARCHAR(500) NOT NULL CHECK (length(cancel_reason) <= 500),
  tracking_no VARCHAR(64) NOT NULL CHECK (length(tracking_no) <= 64),
  version BIGINT NOT NULL CHECK (typeof(version) = 'integer'),
  refused_at DATETIME NULL CHECK (typeof(refused_at) IN ('integer', 'null')),
  expires_at DATETIME NOT NULL CHECK (typeof(expires_at) = 'integer'),
  paid_at DATETIME NULL CHECK (typeof(paid_at) IN ('integer', 'null')),
  created_at DATETIME NOT NULL CHECK (typeof(created_at) = 'integer'),
  updated_at DATETIME NOT NULL CHECK (typeof(updated_at) = 'integer'),
  CONSTRAINT uk_order_no UNIQUE (order_no),
  CONSTRAINT ck_orders_status CHECK (status IN ('CREATED', 'RESERVED', 'PAYING', 'PAID', 'SHIPPED', 'COMPLETED', 'CANCELLED', 'REFUNDED')),
  CONSTRAINT ck_orders_amount CHECK (amount > 0 AND amount <= 100000000000),
  CONSTRAINT ck_orders_paid CHECK (paid_amount IN (0, amount)),
  CONSTRAINT ck_orders_paid_at CHECK ((paid_at IS NULL AND paid_amount = 0) OR (paid_at IS NOT NULL AND paid_amount = amount)),
  CONSTRAINT ck_orders_refunded CHECK (refunded_amount >= 0 AND refunded_amount <= paid_amount),
  CONSTRAINT ck_orders_version CHECK (version > 0 AND attempts >= 0)
);
CREATE INDEX ix_orders_status ON orders (status, expires_at);
CREATE INDEX ix_orders_user ON orders (user_id, id);
CREATE INDEX ix_orders_user_status ON orders (user_id, status);

-- +goose Down
DROP TABLE orders;
