-- +goose Up
-- Money sent back. automatic: at most one refund that we owe by ourselves per payment. gateway is the payment's: one
-- refund of a gateway's is booked once.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE refunds (
  refund_no VARCHAR(64) NOT NULL CHECK (length(refund_no) <= 64),
  payment_no VARCHAR(32) NOT NULL CHECK (length(payment_no) <= 32),
  order_no VARCHAR(32) NOT NULL CHECK (length(order_no) <= 32),
  gateway VARCHAR(32) NOT NULL CHECK (length(gateway) <= 32),
  amount BIGINT NOT NULL CHECK (typeof(amount) = 'integer'),
  currency VARCHAR(3) NOT NULL CHECK (length(currency) <= 3),
  reason VARCHAR(32) NOT NULL CHECK (length(reason) <= 32),
  note VARCHAR(500) NOT NULL CHECK (length(note) <= 500),
  automatic BIGINT NULL CHECK (typeof(automatic) IN ('integer', 'null')),
  status VARCHAR(16) NOT NULL CHECK (length(status) <= 16),
  refund_id VARCHAR(128) NULL CHECK (length(refund_id) <= 128),
  restock BIGINT NOT NULL DEFAULT 0 CHECK (typeof(restock) = 'integer'),
  tries BIGINT NOT NULL DEFAULT 0 CHECK (typeof(tries) = 'integer'),
  checks BIGINT NOT NULL DEFAULT 0 CHECK (typeof(checks) = 'integer'),
  next_check_at DATETIME NULL CHECK (typeof(next_check_at) IN ('integer', 'null')),
  lease_owner VARCHAR(64) NULL CHECK (length(lease_owner) <= 64),
  lease_until DATETIME NULL CHECK (typeof(lease_until) IN ('integer', 'null')),
  created_at DATETIME NOT NULL CHECK (typeof(created_at) = 'integer'),
  updated_at DATETIME NOT NULL CHECK (typeof(updated_at) = 'integer'),
  PRIMARY KEY (refund_no),
  CONSTRAINT uk_refunds_automatic UNIQUE (payment_no, automatic),
  CONSTRAINT uk_refunds_refund_id UNIQUE (gateway, refund_id),
  CONSTRAINT ck_refunds_status CHECK (status IN ('PENDING', 'UNKNOWN', 'SUCCEEDED', 'FAILED')),
  CONSTRAINT ck_refunds_amount CHECK (amount > 0),
  CONSTRAINT ck_refunds_reason CHECK (reason IN ('CUSTOMER', 'LATE_PAYMENT', 'DUPLICATE_PAYMENT', 'AMOUNT_MISMATCH')),
  CONSTRAINT ck_refunds_automatic CHECK ((reason = 'CUSTOMER' AND automatic IS NULL) OR (reason <> 'CUSTOMER' AND automatic IS NOT NULL AND automatic = 1))
);
CREATE INDEX ix_refunds_order ON refunds (order_no);
CREATE INDEX ix_refunds_check ON refunds (next_check_at);

-- +goose Down
DROP TABLE refunds;
