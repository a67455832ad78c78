-- +goose Up
-- Attempts to pay an order. open_slot: at most one is under way; applied: at most one pays the order.
-- missing_since: when the gateway first said that it does not know a charge which may have been sent.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE payments (
  payment_no VARCHAR(32) NOT NULL CHECK (length(payment_no) <= 32),
  order_no VARCHAR(32) NOT NULL CHECK (length(order_no) <= 32),
  attempt BIGINT NOT NULL CHECK (typeof(attempt) = 'integer'),
  gateway VARCHAR(32) NOT NULL CHECK (length(gateway) <= 32),
  transaction_id VARCHAR(128) NULL CHECK (length(transaction_id) <= 128),
  amount BIGINT NOT NULL CHECK (typeof(amount) = 'integer'),
  currency VARCHAR(3) NOT NULL CHECK (length(currency) <= 3),
  received_amount BIGINT NOT NULL DEFAULT 0 CHECK (typeof(received_amount) = 'integer'),
  received_currency VARCHAR(3) NOT NULL DEFAULT '' CHECK (length(received_currency) <= 3),
  status VARCHAR(16) NOT NULL CHECK (length(status) <= 16),
  open_slot BIGINT NULL CHECK (typeof(open_slot) IN ('integer', 'null')),
  applied BIGINT NULL CHECK (typeof(applied) IN ('integer', 'null')),
  refund_held BIGINT NOT NULL DEFAULT 0 CHECK (typeof(refund_held) = 'integer'),
  pay_url VARCHAR(2000) NULL CHECK (length(pay_url) <= 2000),
  checks BIGINT NOT NULL DEFAULT 0 CHECK (typeof(checks) = 'integer'),
  next_check_at DATETIME NULL CHECK (typeof(next_check_at) IN ('integer', 'null')),
  missing_since DATETIME NULL CHECK (typeof(missing_since) IN ('integer', 'null')),
  lease_owner VARCHAR(64) NULL CHECK (length(lease_owner) <= 64),
  lease_until DATETIME NULL CHECK (typeof(lease_until) IN ('integer', 'null')),
  created_at DATETIME NOT NULL CHECK (typeof(created_at) = 'integer'),
  updated_at DATETIME NOT NULL CHECK (typeof(updated_at) = 'integer'),
  PRIMARY KEY (payment_no),
  CONSTRAINT uk_payments_attempt UNIQUE (order_no, attempt),
  CONSTRAINT uk_payments_transaction UNIQUE (gateway, transaction_id),
  CONSTRAINT uk_payments_open UNIQUE (order_no, open_slot),
  CONSTRAINT uk_payments_applied UNIQUE (order_no, applied),
  CONSTRAINT ck_payments_status CHECK (status IN ('INIT', 'PENDING', 'UNKNOWN', 'SUCCEEDED', 'FAILED', 'CLOSED')),
  CONSTRAINT ck_payments_amount CHECK (amount > 0 AND received_amount >= 0),
  CONSTRAINT ck_payments_open CHECK ((open_slot IS NOT NULL AND open_slot = 1 AND status IN ('INIT', 'PENDING', 'UNKNOWN')) OR (open_slot IS NULL AND NOT status IN ('INIT', 'PENDING', 'UNKNOWN'))),
  CONSTRAINT ck_payments_applied CHECK (applied IS NULL OR (applied = 1 AND status = 'SUCCEEDED')),
  CONSTRAINT ck_payments_received CHECK ((status = 'SUCCEEDED' AND received_amount > 0) OR (status <> 'SUCCEEDED' AND received_amount = 0)),
  CONSTRAINT ck_payments_refund_held CHECK (refund_held >= 0 AND refund_held <= received_amount)
);
CREATE INDEX ix_payments_check ON payments (next_check_at);

-- +goose Down
DROP TABLE payments;
