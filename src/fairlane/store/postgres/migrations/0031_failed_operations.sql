-- Operations that failed: listed, counted and removed without a look at the others. By failed_at, not by status: that changes
-- with each operation that is begun and completed, which then would move index entries.
CREATE INDEX operations_failed ON fairlane.operations (shard, id) WHERE failed_at IS NOT NULL;
