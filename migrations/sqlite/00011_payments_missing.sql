-- +goose Up
-- When the gateway first said that it does not know a charge which may have been sent.
ALTER TABLE payments ADD COLUMN missing_since DATETIME NULL CHECK (typeof(missing_since) IN ('integer', 'null'));

-- +goose Down
ALTER TABLE payments DROP COLUMN missing_since;
