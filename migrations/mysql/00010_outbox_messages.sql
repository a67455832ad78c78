-- +goose Up
-- Messages to publish, written in the transaction of the event they tell of. The lease's columns are of fixed size and never
-- NULL: a lease is written into the row where it stands, which costs a sixth of a row that grows.
CREATE TABLE IF NOT EXISTS outbox_messages (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seq BIGINT NOT NULL,
  event VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  payload MEDIUMTEXT NOT NULL,
  created_at DATETIME(6) NOT NULL,
  published_at DATETIME(6) NULL,
  attempts BIGINT NOT NULL DEFAULT 0,
  lease_owner BIGINT NOT NULL DEFAULT 0,
  lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00',
  UNIQUE KEY uk_outbox_order (order_no, seq),
  KEY ix_outbox_pending (published_at, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE outbox_messages;
