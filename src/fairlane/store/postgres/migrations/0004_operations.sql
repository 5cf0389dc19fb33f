-- Pushes of the partition that were accepted and are not applied yet: while there are any, other pushes must wait too.
-- Operations are numbered under the partition's lock, so that their order is no clock's.
ALTER TABLE fairlane.partitions
    ADD open_operations int NOT NULL DEFAULT 0,
    ADD next_operation bigint NOT NULL DEFAULT 0;

CREATE TABLE fairlane.operations (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    group_id bigint NOT NULL,      -- 0 for pushes
    sequence bigint NOT NULL,
    id uuid NOT NULL,
    type text NOT NULL,
    priority int NOT NULL,
    tenant text NOT NULL,
    queue text NOT NULL,
    partition_name text NOT NULL,
    "group" text NOT NULL,
    queue_id bigint NOT NULL,
    payload bytea NOT NULL,
    size int NOT NULL,
    messages int NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    processed_at timestamptz,
    worker text,
    timeout_seconds int NOT NULL DEFAULT 30,
    retries int NOT NULL DEFAULT 0,
    error text,
    failed_at timestamptz,
    result bytea,
    PRIMARY KEY (shard, partition_id, group_id, sequence)
-- Each is claimed and completed once, which moves no index entry as long as there is room in its page.
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- Look-ups, repeats of an enqueue, and removing old ones: an id begins with the time it was made at.
CREATE UNIQUE INDEX operations_id ON fairlane.operations (shard, id);

-- Lanes that have open operations. `ready_at`: past, may be claimed; future, held by a worker or waiting for a retry.
CREATE TABLE fairlane.operation_lanes (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    group_id bigint NOT NULL,
    queue_id bigint NOT NULL,
    tenant text NOT NULL,
    queue text NOT NULL,
    partition_name text NOT NULL,
    "group" text NOT NULL,
    priority int NOT NULL,
    open int NOT NULL,
    -- Of the open operations in all: the places that they hold in their queue.
    messages bigint NOT NULL,
    -- Nothing below is open.
    next_sequence bigint NOT NULL,
    ready_at timestamptz NOT NULL,
    -- When the lane was made, or an operation of it ended last.
    moved_at timestamptz NOT NULL,
    claim uuid,
    PRIMARY KEY (shard, partition_id, group_id)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- claim: lanes that are ready, best priority first, longest-ready first.
CREATE INDEX operation_lanes_ready ON fairlane.operation_lanes (shard, priority, ready_at);
-- Counting the depth of a queue anew.
CREATE INDEX operation_lanes_queue ON fairlane.operation_lanes (shard, queue_id);

-- Which queues changed, for what brokers remember of them. Numbered in commit order by the lock on the only row of
-- `catalogue`.
CREATE TABLE fairlane.catalogue (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO fairlane.catalogue (version) VALUES (0);

CREATE TABLE fairlane.catalogue_changes (
    version bigint PRIMARY KEY,
    queue_id bigint NOT NULL
);
