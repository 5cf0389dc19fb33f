-- Up to this time ids were pushed that may have been pushed before, so that a call which comes late may be a repeat of
-- them. The functions of operations are replaced as well: their plans must not be those of an empty table.
ALTER TABLE fairlane.partitions ADD doubted_until_ms bigint NOT NULL DEFAULT 0;
