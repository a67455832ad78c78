-- +goose Up
-- missing_since: when the gateway first said that it does not know a charge which may have been sent. MySQL's ADD COLUMN has
-- no IF NOT EXISTS, and a process may have died between it and the note of it.
SET @missing = (SELECT IF(COUNT(*) = 0, 'ALTER TABLE payments ADD COLUMN missing_since DATETIME(6) NULL', 'DO 0')
  FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'payments' AND column_name = 'missing_since');
PREPARE add_missing FROM @missing;
EXECUTE add_missing;
DEALLOCATE PREPARE add_missing;

-- +goose Down
ALTER TABLE payments DROP COLUMN missing_since;
