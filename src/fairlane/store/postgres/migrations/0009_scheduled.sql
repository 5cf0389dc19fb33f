-- Messages that wait for their time; they get their position when they are due.
CREATE TABLE fairlane.scheduled (
    shard int NOT NULL,
    -- When to append it: its time, or later while its queue is full.
    due_at timestamptz NOT NULL,
    message_id text NOT NULL,
    partition_id bigint NOT NULL,
    queue_id bigint NOT NULL,
    partition_name text COLLATE "C" NOT NULL,
    key bigint NOT NULL,
    id_ms bigint NOT NULL,
    given boolean NOT NULL,
    transaction_id text NOT NULL,
    message bytea NOT NULL,
    -- fire: what is due, oldest first.
    PRIMARY KEY (shard, due_at, message_id),
    -- cancel, reschedule, and a second message of the same id; purging a partition.
    UNIQUE (shard, partition_id, key)
);
ALTER TABLE fairlane.scheduled ALTER message SET STORAGE EXTERNAL;
