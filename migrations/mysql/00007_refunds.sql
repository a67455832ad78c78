-- +goose Up
-- Money sent back. automatic: at most one refund that we owe by ourselves per payment. gateway is the payment's: one
-- refund of a gateway's is booked once.
CREATE TABLE IF NOT EXISTS refunds (
  refund_no VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  payment_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  gateway VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount BIGINT NOT NULL,
  currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  note VARCHAR(500) NOT NULL,
  automatic BIGINT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  refund_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
  restock BIGINT NOT NULL DEFAULT 0,
  tries BIGINT NOT NULL DEFAULT 0,
  checks BIGINT NOT NULL DEFAULT 0,
  next_check_at DATETIME(6) NULL,
  lease_owner VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  lease_until DATETIME(6) NULL,
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (refund_no),
  UNIQUE KEY uk_refunds_automatic (payment_no, automatic),
  UNIQUE KEY uk_refunds_refund_id (gateway, refund_id),
  KEY ix_refunds_order (order_no),
  KEY ix_refunds_check (next_check_at),
  CONSTRAINT ck_refunds_status CHECK (status IN ('PENDING', 'UNKNOWN', 'SUCCEEDED', 'FAILED')),
  CONSTRAINT ck_refunds_amount CHECK (amount > 0),
  CONSTRAINT ck_refunds_reason CHECK (reason IN ('CUSTOMER', 'LATE_PAYMENT', 'DUPLICATE_PAYMENT', 'AMOUNT_MISMATCH')),
  CONSTRAINT ck_refunds_automatic CHECK ((reason = 'CUSTOMER' AND automatic IS NULL) OR (reason <> 'CUSTOMER' AND automatic IS NOT NULL AND automatic = 1))
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE refunds;
