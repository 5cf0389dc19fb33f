-- A lane that becomes ready counts as if it had waited this much longer: its priority.
ALTER TABLE fairlane.partitions ADD boost interval NOT NULL DEFAULT '0';
-- It tells the next try as well now.
DROP FUNCTION IF EXISTS fairlane.holdings(int, bigint, bigint, timestamptz);
