-- Messages that wait for their time, as they were scheduled: those of one call and partition are a bundle, in the order in which
-- they are due. They get their positions when they are due; a row for each would cost ten times as much.
CREATE TABLE fairlane.bundles (
    shard int NOT NULL,
    id uuid NOT NULL,
    partition_id bigint NOT NULL,
    queue_id bigint NOT NULL,
    partition_name text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    -- When its first message is due, or is tried again while its queue is full.
    next_at timestamptz NOT NULL,
    -- When its last message is due.
    last_at timestamptz NOT NULL,
    n int NOT NULL,
    -- How many of them, from the first, were appended already.
    taken int NOT NULL DEFAULT 0,
    -- Whether ids of it are in bundle_keys.
    keyed boolean NOT NULL,
    PRIMARY KEY (shard, id)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- due: what is due, oldest first.
CREATE INDEX bundles_due ON fairlane.bundles (shard, next_at, id);
-- waiting: a message by its id, which says when it was scheduled; purging a partition.
CREATE INDEX bundles_lane ON fairlane.bundles (shard, partition_id, created_at);

-- Apart from the row that changes when some of them are due. `due` is in microseconds since 1970.
CREATE TABLE fairlane.bundle_messages (
    shard int NOT NULL,
    id uuid NOT NULL,
    due bigint[] NOT NULL,
    ends int[] NOT NULL,
    keys bigint[] NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, id)
);
ALTER TABLE fairlane.bundle_messages ALTER body SET STORAGE EXTERNAL;

-- Ids that do not say when they were scheduled.
CREATE TABLE fairlane.bundle_keys (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    key bigint NOT NULL,
    bundle_id uuid NOT NULL,
    PRIMARY KEY (shard, partition_id, key)
);

INSERT INTO fairlane.bundles (shard, id, partition_id, queue_id, partition_name, created_at, next_at, last_at, n, keyed)
SELECT x.shard, x.message_id::uuid, x.partition_id, x.queue_id, x.partition_name, 'epoch', x.due_at, x.due_at, 1, true
FROM fairlane.scheduled x;
INSERT INTO fairlane.bundle_messages (shard, id, due, ends, keys, body)
SELECT x.shard, x.message_id::uuid, ARRAY[(extract(epoch FROM x.due_at) * 1000000)::bigint], ARRAY[length(x.message)], ARRAY[x.key],
       x.message
FROM fairlane.scheduled x;
INSERT INTO fairlane.bundle_keys (shard, partition_id, key, bundle_id)
SELECT x.shard, x.partition_id, x.key, x.message_id::uuid FROM fairlane.scheduled x;
DROP TABLE fairlane.scheduled;
DROP FUNCTION IF EXISTS fairlane.schedule(int, bigint[], bigint[], text[], int[], int[], bigint[], bigint[], boolean[], timestamptz[], bigint[],
                                          text[], text[], bytea[], timestamptz);
