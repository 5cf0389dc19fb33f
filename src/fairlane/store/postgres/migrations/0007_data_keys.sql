-- Keys of encrypted queues, each sealed by a key that the operator holds.
CREATE TABLE fairlane.data_keys (
    id bytea PRIMARY KEY,
    queue_id bigint NOT NULL,
    kek text NOT NULL,
    wrapped bytea NOT NULL,
    created_at timestamptz NOT NULL
);
-- All keys of a queue: for a replay, and to delete them with it.
CREATE INDEX data_keys_queue ON fairlane.data_keys (queue_id);
