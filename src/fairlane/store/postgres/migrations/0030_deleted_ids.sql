-- Ids of messages that went before the window of their queue had passed, as the segment that held them: ids that are not UUIDv7, or
-- were old when they were pushed, are in message_keys too.
CREATE TABLE fairlane.deleted_ids (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    created_at timestamptz NOT NULL,
    first_pos bigint NOT NULL,
    forget_at timestamptz NOT NULL,
    keys bigint[] NOT NULL,
    -- 16 bytes each.
    message_ids bytea NOT NULL,
    -- NULL: the same as the messages', as where the broker made them. An element is NULL where message_keys has the id.
    transaction_ids uuid[],
    PRIMARY KEY (shard, partition_id, created_at, first_pos)
);
-- Retention: those whose window has passed.
CREATE INDEX deleted_ids_forget ON fairlane.deleted_ids (shard, forget_at);

-- Of what lies below this position nothing is remembered.
ALTER TABLE fairlane.trims ADD cleared bigint NOT NULL DEFAULT 0;
