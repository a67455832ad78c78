-- +goose Up
-- What was received and had its effect, in the same transaction. A second arrival only raises duplicates.
CREATE TABLE IF NOT EXISTS inbox_messages (
  source VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  message_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  payload_hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  outcome VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  duplicates BIGINT NOT NULL DEFAULT 0,
  received_at DATETIME(6) NOT NULL,
  PRIMARY KEY (source, message_id),
  KEY ix_inbox_order (order_no),
  KEY ix_inbox_received (received_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- +goose Down
DROP TABLE inbox_messages;
