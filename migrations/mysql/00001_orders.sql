-- +goose Up
-- One row per order_no. Amounts are minor units of currency, times UTC.
CREATE TABLE IF NOT EXISTS orders (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fingerprint VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  gateway VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount BIGINT NOT NULL,
  paid_amount BIGINT NOT NULL DEFAULT 0,
  refunded_amount BIGINT NOT NULL DEFAULT 0,
  attempts BIGINT NOT NULL DEFAULT 0,
  note VARCHAR(500) NOT NULL,
  cancel_reason VARCHAR(500) NOT NULL,
  tracking_no VARCHAR(64) NOT NULL,
  version BIGINT NOT NULL,
  refused_at DATETIME(6) NULL,
  expires_at DATETIME(6) NOT NULL,
  paid_at DATETIME(6) NULL,
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  UNIQUE KEY uk_order_no (order_no),
  KEY ix_orders_status (status, expires_at),
  KEY ix_orders_user (user_id, id),
  KEY ix_orders_user_status (user_id, status),
  CONSTRAINT ck_orders_status CHECK (status IN ('CREATED', 'RESERVED', 'PAYING', 'PAID', 'SHIPPED', 'COMPLETED', 'CANCELLED', 'REFUNDED')),
  CONSTRAINT ck_orders_amount CHECK (amount > 0 AND amount <= 100000000000),
  CONSTRAINT ck_orders_paid CHECK (paid_amount IN (0, amount)),
  CONSTRAINT ck_orders_paid_at CHECK ((paid_at IS NULL AND paid_amount = 0) OR (paid_at IS NOT NULL AND paid_amount = amount)),
  CONSTRAINT ck_orders_refunded CHECK (refunded_amount >= 0 AND refunded_amount <= paid_amount),
  CONSTRAINT ck_orders_version CHECK (version > 0 AND attempts >= 0)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE orders;
