-- Unordered queues. Positions below `claimed` were handed out; `committed` is still what everything below is finished.
ALTER TABLE fairlane.cursors ADD claimed bigint NOT NULL DEFAULT 0;

-- What is in consumers' hands: ranges of positions that are not finished yet. A whole batch is one row. Whoever changes the rows
-- of a lane, here or in `failures`, holds its cursor.
CREATE TABLE fairlane.claims (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    group_id bigint NOT NULL,
    first_pos bigint NOT NULL,
    upto bigint NOT NULL,
    token uuid NOT NULL,
    ends_at timestamptz NOT NULL,
    PRIMARY KEY (shard, partition_id, group_id, first_pos)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- pop: claims that ran out. renew, release: the live ones of a group.
CREATE INDEX claims_ends ON fairlane.claims (shard, group_id, ends_at);

-- A message of an unordered queue that comes again has `due_at`. With `token` it is out again until then. `alone`: it was in a
-- batch that was lost, and is handed out by itself, so that the poison is found.
ALTER TABLE fairlane.failures ADD due_at timestamptz;
ALTER TABLE fairlane.failures ADD token uuid;
ALTER TABLE fairlane.failures ADD alone boolean NOT NULL DEFAULT false;
-- pop: messages that are due.
CREATE INDEX failures_due ON fairlane.failures (shard, group_id, due_at) WHERE due_at IS NOT NULL;
