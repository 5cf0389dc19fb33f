-- Messages that pops step over: deleted ones have the group 0, those that a group gave up on ahead of its cursor have
-- that group. A cursor with one of its own ahead is marked as failing, as with a row of `failures`.
CREATE TABLE fairlane.skips (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    position bigint NOT NULL,
    group_id bigint NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (shard, partition_id, position, group_id)
);

-- Partitions whose log below `start` still has to go.
CREATE TABLE fairlane.trims (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    PRIMARY KEY (shard, partition_id)
);

CREATE TABLE fairlane.traces (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    transaction_id text NOT NULL,
    id text NOT NULL,
    created_at timestamptz NOT NULL,
    group_name text NOT NULL,
    event_type text NOT NULL,
    data bytea NOT NULL,
    names text[] NOT NULL,
    PRIMARY KEY (shard, partition_id, transaction_id, id)
);

CREATE TABLE fairlane.trace_names (
    shard int NOT NULL,
    tenant_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    trace_id text NOT NULL,
    partition_id bigint NOT NULL,
    transaction_id text NOT NULL,
    PRIMARY KEY (shard, tenant_id, name, created_at, trace_id)
);
-- Purging a partition and deleting a message: the names of its traces.
CREATE INDEX trace_names_message ON fairlane.trace_names (shard, partition_id, transaction_id);

CREATE TABLE fairlane.stream_queries (
    id uuid PRIMARY KEY,
    tenant_id bigint NOT NULL,
    name text NOT NULL,
    source_queue text NOT NULL,
    sink_queue text,
    config_hash text NOT NULL,
    updated_at timestamptz NOT NULL,
    UNIQUE (tenant_id, name)
);

CREATE TABLE fairlane.stream_state (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    query_id uuid NOT NULL,
    key text COLLATE "C" NOT NULL,
    window_end double precision,
    updated_at timestamptz NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (shard, partition_id, query_id, key)
) WITH (fillfactor = 70);
-- Dropping all state of a query.
CREATE INDEX stream_state_query ON fairlane.stream_state (shard, query_id);

CREATE TABLE fairlane.switches (
    name text PRIMARY KEY,
    enabled boolean NOT NULL,
    changed_at timestamptz NOT NULL
);

-- For people: every retained message that was not deleted, one row each.
CREATE OR REPLACE VIEW fairlane.messages AS
SELECT t.name AS tenant, q.name AS queue, p.name AS partition, s.first_pos + e.ord - 1 AS position,
       m.doc ->> 'id' AS id, m.doc ->> 'transactionId' AS transaction_id, m.doc ->> 'traceId' AS trace_id,
       m.doc ->> 'type' AS type, m.doc -> 'headers' AS headers, s.created_at, m.doc -> 'data' AS data
FROM fairlane.segments s
JOIN fairlane.partitions p ON p.shard = s.shard AND p.id = s.partition_id
JOIN fairlane.queues q ON q.id = p.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id
CROSS JOIN LATERAL unnest(s.ends) WITH ORDINALITY AS e(upto, ord)
CROSS JOIN LATERAL (
    SELECT (convert_from(substring(s.body FROM coalesce(s.ends[e.ord::int - 1], 0) + 1
                                   FOR e.upto - coalesce(s.ends[e.ord::int - 1], 0)), 'UTF8') || '}')::json AS doc
) m
WHERE s.first_pos + e.ord > p.start
  AND NOT EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.shard = s.shard AND x.partition_id = s.partition_id
                  AND x.position = s.first_pos + e.ord - 1 AND x.group_id = 0);
