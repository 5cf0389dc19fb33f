-- Hot tables begin their key with `shard`, and every hot statement names one shard: on one PostgreSQL that costs
-- nothing, on Citus it is the distribution column. No foreign keys or triggers, which would not survive that.

CREATE TABLE fairlane.shards (
    shard int PRIMARY KEY
);

CREATE TABLE fairlane.tenants (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);
INSERT INTO fairlane.tenants (name) VALUES ('default');

CREATE TABLE fairlane.queues (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint NOT NULL,
    name text NOT NULL,
    namespace text NOT NULL,
    task text NOT NULL,
    options jsonb NOT NULL,
    -- Messages not yet finished by every group; kept only while options.max_size > 0.
    depth bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    UNIQUE (tenant_id, name)
) WITH (fillfactor = 50);

-- Queues that were deleted and whose rows are still being removed.
CREATE TABLE fairlane.purges (
    queue_id bigint PRIMARY KEY,
    deleted_at timestamptz NOT NULL
);

CREATE TABLE fairlane.groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL,
    name text NOT NULL,
    mode text NOT NULL,
    from_at timestamptz,
    created_at timestamptz NOT NULL,
    -- Where making this group's cursors goes on: behind this partition name in this shard; NULL when all are made.
    seed_shard int,
    seed_after text COLLATE "C",
    UNIQUE (queue_id, name)
);

CREATE TABLE fairlane.partitions (
    shard int NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    queue_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    head bigint NOT NULL DEFAULT 0,
    start bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    -- The latest time inside any UUIDv7 transactionId stored here: a later id cannot be a duplicate.
    newest_id_ms bigint NOT NULL DEFAULT -1,
    -- The latest time of an id that lay ahead of the database's clock and is therefore in message_keys.
    keyed_until_ms bigint NOT NULL DEFAULT -1,
    message_bytes_max int NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, id),
    -- Finds a partition by name.
    UNIQUE (shard, queue_id, name)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE fairlane.segments (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    first_pos bigint NOT NULL,
    n int NOT NULL,
    created_at timestamptz NOT NULL,
    checksum bigint NOT NULL,
    ends int[] NOT NULL,
    keys bigint[] NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, partition_id, first_pos)
-- A segment that fits into a page stays in it: cutting it into chunks of 2 KB costs more than all the rest of a push.
) WITH (toast_tuple_target = 8160);
-- Payloads rarely shrink enough to pay for the time of compressing them.
ALTER TABLE fairlane.segments ALTER body SET STORAGE EXTERNAL;
ALTER TABLE fairlane.segments ALTER keys SET STORAGE EXTERNAL;
ALTER TABLE fairlane.segments ALTER ends SET STORAGE EXTERNAL;

CREATE TABLE fairlane.message_keys (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    key bigint NOT NULL,
    position bigint NOT NULL,
    created_at timestamptz NOT NULL,
    message_id text NOT NULL,
    transaction_id text NOT NULL,
    PRIMARY KEY (shard, partition_id, key)
);

CREATE TABLE fairlane.cursors (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    group_id bigint NOT NULL,
    -- Everything below is finished.
    committed bigint NOT NULL,
    -- NULL: nothing to read. Past: may be claimed. Future: leased, or sleeping after a failure.
    ready_at timestamptz,
    lease uuid,
    lease_start bigint NOT NULL DEFAULT 0,
    lease_end bigint NOT NULL DEFAULT 0,
    leased_at timestamptz,
    -- The lease that its holder finished last: a repeated ack is told apart from a stale one.
    last_lease uuid,
    -- After a lost lease messages below are delivered one at a time, so that the poison is found alone.
    probe_until bigint NOT NULL DEFAULT 0,
    -- Whether `failures` has rows of this lane.
    failing boolean NOT NULL DEFAULT false,
    dead bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, partition_id, group_id)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- pop: the lanes of a group that are ready, longest first. renew, release: the live leases of a group.
CREATE INDEX cursors_ready ON fairlane.cursors (shard, group_id, ready_at) WHERE ready_at IS NOT NULL;

-- Messages that failed and were not passed yet; the happy path has none.
CREATE TABLE fairlane.failures (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    group_id bigint NOT NULL,
    position bigint NOT NULL,
    attempts int NOT NULL,
    error text NOT NULL,
    first_failed_at timestamptz NOT NULL,
    failed_at timestamptz NOT NULL,
    PRIMARY KEY (shard, partition_id, group_id, position)
);

CREATE TABLE fairlane.dead_letters (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    group_id bigint NOT NULL,
    position bigint NOT NULL,
    queue_id bigint NOT NULL,
    message bytea NOT NULL,
    message_created_at timestamptz NOT NULL,
    error text NOT NULL,
    attempts int NOT NULL,
    first_failed_at timestamptz NOT NULL,
    failed_at timestamptz NOT NULL,
    replayed_at timestamptz,
    replayed_as text,
    PRIMARY KEY (shard, partition_id, group_id, position)
);
-- Lists a queue's dead letters, newest failure first.
CREATE INDEX dead_letters_failed ON fairlane.dead_letters (shard, queue_id, failed_at);

-- What an ack carried as its result.
CREATE TABLE fairlane.results (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    group_id bigint NOT NULL,
    position bigint NOT NULL,
    result bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (shard, partition_id, group_id, position)
);

-- For people: every retained message, one row each.
CREATE VIEW fairlane.messages AS
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
) m;
