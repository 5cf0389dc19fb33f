-- Where the messages are that carry a traceId; others have no row.
CREATE TABLE fairlane.traced (
    shard int NOT NULL,
    trace_id uuid NOT NULL,
    partition_id bigint NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (shard, trace_id, partition_id, position)
);
-- Forgets the messages of a partition that are gone.
CREATE INDEX traced_place ON fairlane.traced (shard, partition_id, position);
