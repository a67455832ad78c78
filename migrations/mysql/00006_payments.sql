-- +goose Up
-- Attempts to pay an order. open_slot: at most one is under way; applied: at most one pays the order.
-- missing_since: when the gateway first said that it does not know a charge which may have been sent.
CREATE TABLE IF NOT EXISTS payments (
  payment_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  attempt BIGINT NOT NULL,
  gateway VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  transaction_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
  amount BIGINT NOT NULL,
  currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  received_amount BIGINT NOT NULL DEFAULT 0,
  received_currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  open_slot BIGINT NULL,
  applied BIGINT NULL,
  refund_held BIGINT NOT NULL DEFAULT 0,
  pay_url VARCHAR(2000) NULL,
  checks BIGINT NOT NULL DEFAULT 0,
  next_check_at DATETIME(6) NULL,
  missing_since DATETIME(6) NULL,
  lease_owner VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  lease_until DATETIME(6) NULL,
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (payment_no),
  UNIQUE KEY uk_payments_attempt (order_no, attempt),
  UNIQUE KEY uk_payments_transaction (gateway, transaction_id),
  UNIQUE KEY uk_payments_open (order_no, open_slot),
  UNIQUE KEY uk_payments_applied (order_no, applied),
  KEY ix_payments_check (next_check_at),
  CONSTRAINT ck_payments_status CHECK (status IN ('INIT', 'PENDING', 'UNKNOWN', 'SUCCEEDED', 'FAILED', 'CLOSED')),
  CONSTRAINT ck_payments_amount CHECK (amount > 0 AND received_amount >= 0),
  CONSTRAINT ck_payments_open CHECK ((open_slot IS NOT NULL AND open_slot = 1 AND status IN ('INIT', 'PENDING', 'UNKNOWN')) OR (open_slot IS NULL AND NOT status IN ('INIT', 'PENDING', 'UNKNOWN'))),
  CONSTRAINT ck_payments_applied CHECK (applied IS NULL OR (applied = 1 AND status = 'SUCCEEDED')),
  CONSTRAINT ck_payments_received CHECK ((status = 'SUCCEEDED' AND received_amount > 0) OR (status <> 'SUCCEEDED' AND received_amount = 0)),
  CONSTRAINT ck_payments_refund_held CHECK (refund_held >= 0 AND refund_held <= received_amount)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE payments;
