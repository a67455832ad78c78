-- +goose Up
-- What was received and had its effect, in the same transaction. A second arrival only raises duplicates.
-- SQLite takes any type anywhere, so each column checks its own; times are microseconds since 1970.
CREATE TABLE inbox_messages (
  source VARCHAR(64) NOT NULL CHECK (length(source) <= 64),
  message_id VARCHAR(128) NOT NULL CHECK (length(message_id) <= 128),
  payload_hash VARCHAR(64) NOT NULL CHECK (length(payload_hash) <= 64),
  order_no VARCHAR(32) NOT NULL CHECK (length(order_no) <= 32),
  kind VARCHAR(32) NOT NULL CHECK (length(kind) <= 32),
  outcome VARCHAR(32) NOT NULL CHECK (length(outcome) <= 32),
  duplicates BIGINT NOT NULL DEFAULT 0 CHECK (typeof(duplicates) = 'integer'),
  received_at DATETIME NOT NULL CHECK (typeof(received_at) = 'integer'),
  PRIMARY KEY (source, message_id)
);
CREATE INDEX ix_inbox_order ON inbox_messages (order_no);
CREATE INDEX ix_inbox_received ON inbox_messages (received_at);

-- +goose Down
DROP TABLE inbox_messages;
