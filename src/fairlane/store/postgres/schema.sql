-- The tables of a new database, here and in `schema_*.sql`. A table begins with the columns of its key.
--
-- There are no foreign keys and no triggers, so that the whole schema can be distributed.
CREATE SCHEMA IF NOT EXISTS fairlane;

-- Applied versions of the schema. `hash` is the hash of these files if it created the tables.
CREATE TABLE fairlane.migrations (
    version int PRIMARY KEY, name text NOT NULL, hash text, applied_at timestamptz NOT NULL,
    needs int NOT NULL  -- The oldest schema whose brokers can use the database.
);

-- The hash of the installed functions, and the version of Fairlane that installed them. A start of the same or a newer
-- version replaces them if the hash differs.
CREATE TABLE fairlane.functions (one boolean PRIMARY KEY DEFAULT true CHECK (one), hash text NOT NULL, version text NOT NULL);

-- Tenants, the owners of queues.
CREATE TABLE fairlane.tenants (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, quotas jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz  -- NULL: created with the database.
);
INSERT INTO fairlane.tenants (name) VALUES ('default');

-- Queues, each with its options.
CREATE TABLE fairlane.queues (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint NOT NULL, name text NOT NULL, namespace text NOT NULL, task text NOT NULL, options jsonb NOT NULL,
    depth bigint NOT NULL DEFAULT 0,  -- Messages that some group has not finished. Kept only while options.max_size > 0.
    created_at timestamptz NOT NULL,
    paused_at timestamptz,  -- Set while it is paused.
    -- `retained` is read by every push; `ruled` finds the queues for a pass of retention; `enqueued` tells `enqueue` that any
    -- message may be staged: in clear, and in any partition.
    retained boolean NOT NULL GENERATED ALWAYS AS (coalesce((options ->> 'retention_enabled')::boolean, false)) STORED,
    ruled boolean NOT NULL GENERATED ALWAYS AS (coalesce((options ->> 'retention_enabled')::boolean, false)
                                                OR coalesce((options ->> 'dead_letter_retention_seconds')::bigint, 0) > 0) STORED,
    enqueued boolean NOT NULL GENERATED ALWAYS AS (NOT options @> '{"encryption_enabled": true}'
                                                   AND NOT options @> '{"ordering": "fifo"}') STORED,
    UNIQUE (tenant_id, name)  -- A queue by its name, and all queues of a tenant.
) WITH (fillfactor = 50);
CREATE INDEX queues_ruled ON fairlane.queues (id) WHERE ruled;  -- retention: queues with rules.
-- For acks: true if any queue is limited.
CREATE INDEX queues_limited ON fairlane.queues (id) WHERE (options ->> 'max_size')::bigint > 0;

-- Consumer groups. Each reads all messages of its queue.
CREATE TABLE fairlane.groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL, name text NOT NULL, mode text NOT NULL, from_at timestamptz,
    conflation boolean NOT NULL DEFAULT false,  -- True to deliver only the newest message of each partition.
    look boolean NOT NULL DEFAULT false,  -- Created to inspect messages, and not used by a consumer since.
    counts boolean NOT NULL DEFAULT true,  -- True if its unfinished messages count towards the depth.
    created_at timestamptz NOT NULL,
    paused_at timestamptz,  -- Set while it is paused.
    seed_after text COLLATE "C",  -- After this name partitions may lack a cursor. NULL: none does.
    UNIQUE (queue_id, name)  -- A group by its name, and all groups of a queue.
);

-- Deleted queues whose rows are still being removed.
CREATE TABLE fairlane.purges (queue_id bigint PRIMARY KEY, deleted_at timestamptz NOT NULL);

-- The number of the last change of the catalogue. Changes are numbered in commit order by the lock on its only row.
CREATE TABLE fairlane.catalogue (one boolean PRIMARY KEY DEFAULT true CHECK (one), version bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO fairlane.catalogue (version) VALUES (0);

-- Changed queues, for the caches of brokers.
CREATE TABLE fairlane.catalogue_changes (version bigint PRIMARY KEY, queue_id bigint NOT NULL);

-- The log: partitions, and the messages in them.

-- A row that is updated often is found by its newest epoch. While a transaction stays open elsewhere, old versions of the row
-- cannot be removed: a lookup by id would read all of them, and one that begins at the highest epoch finds the live version
-- first. Statements that look up one row thousands of times an hour do this. For all others the id is enough.

-- Ordered streams of a queue. An epoch of a partition is 16 pushes: the others update no index if their page has space. `push`
-- sets it, because logical replication does not allow a generated column in a key. Only the key may be a unique index, because
-- the check would visit every version. The lock of the queue, under which partitions are created, keeps their names unique.
CREATE TABLE fairlane.partitions (
    id bigint GENERATED ALWAYS AS IDENTITY, epoch bigint NOT NULL DEFAULT 0,
    queue_id bigint NOT NULL, name text COLLATE "C" NOT NULL,
    head bigint NOT NULL DEFAULT 0, start bigint NOT NULL DEFAULT 0,  -- The next position, and the first retained one.
    pushes bigint NOT NULL DEFAULT 0, message_bytes_max int NOT NULL DEFAULT 0,
    -- The latest time inside any UUIDv7 transactionId stored here: a later id cannot be a duplicate.
    newest_id_ms bigint NOT NULL DEFAULT -1,
    -- The latest time of an id that was ahead of the database's clock, and is therefore in message_keys.
    keyed_until_ms bigint NOT NULL DEFAULT -1,
    -- Ids up to this time may have been pushed before, so that a late call may be a repeat.
    doubted_until_ms bigint NOT NULL DEFAULT 0,
    -- Accepted pushes, and acks of any group, that are not applied yet. While there are any, later ones must wait, too.
    -- Operations are numbered under the lock of the partition, so that their order does not depend on a clock.
    open_operations int NOT NULL DEFAULT 0, open_acks int NOT NULL DEFAULT 0, next_operation bigint NOT NULL DEFAULT 0,
    -- A lane that becomes ready counts as if it had waited this much longer: its priority.
    priority_lead interval NOT NULL DEFAULT '0',
    created_at timestamptz NOT NULL, last_at timestamptz NOT NULL,
    paused_at timestamptz,  -- Set while it is paused.
    PRIMARY KEY (id, epoch)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- A partition by its name, and all partitions of a queue.
CREATE INDEX partitions_name ON fairlane.partitions (queue_id, name);
CREATE INDEX partitions_paused ON fairlane.partitions (queue_id) WHERE paused_at IS NOT NULL;  -- pauses: paused partitions.

-- Segments of consecutive messages. A segment that fits into a page stays in it: splitting it into chunks of 2 KB costs more than
-- the rest of a push.
CREATE TABLE fairlane.segments (
    partition_id bigint NOT NULL, first_pos bigint NOT NULL,
    n int NOT NULL, created_at timestamptz NOT NULL, checksum bigint NOT NULL,
    -- Payloads rarely shrink enough to justify the time of compressing them.
    ends int[] NOT NULL, keys bigint[] NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (partition_id, first_pos)
) WITH (toast_tuple_target = 8160);
ALTER TABLE fairlane.segments ALTER ends SET STORAGE EXTERNAL, ALTER keys SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL;

-- Ids that are not UUIDv7, or were old when they were pushed, so that the time of their segment does not lead to them.
CREATE TABLE fairlane.message_keys (
    partition_id bigint NOT NULL, key bigint NOT NULL,
    position bigint NOT NULL, created_at timestamptz NOT NULL, message_id text NOT NULL, transaction_id text NOT NULL,
    PRIMARY KEY (partition_id, key)
);

-- Ids of messages that were deleted before the window of their queue had passed, one row per segment.
CREATE TABLE fairlane.deleted_ids (
    partition_id bigint NOT NULL, created_at timestamptz NOT NULL, first_pos bigint NOT NULL,
    forget_at timestamptz NOT NULL,
    -- Keys do not compress, and trying to costs more than the rest of a row. Message ids have 16 bytes each.
    keys bigint[] NOT NULL, message_ids bytea NOT NULL,
    -- NULL if they equal the message ids, because the broker generated them. An element is NULL if message_keys has the id.
    transaction_ids uuid[], PRIMARY KEY (partition_id, created_at, first_pos)
);
ALTER TABLE fairlane.deleted_ids ALTER keys SET STORAGE EXTERNAL, ALTER message_ids SET STORAGE EXTERNAL, ALTER transaction_ids SET STORAGE EXTERNAL;
CREATE INDEX deleted_ids_forget ON fairlane.deleted_ids (forget_at);  -- retention: ids whose window has passed.

-- Messages that pops skip: deleted ones with group 0, and those that a group finished or dead-lettered ahead of its cursor. Such
-- a cursor is marked as failing, as with a row of `failures`.
CREATE TABLE fairlane.skips (
    partition_id bigint NOT NULL, position bigint NOT NULL, group_id bigint NOT NULL,
    created_at timestamptz NOT NULL, PRIMARY KEY (partition_id, position, group_id)
);

-- Partitions whose log below `start` is still to be removed.
CREATE TABLE fairlane.trims (
    partition_id bigint NOT NULL,
    cleared bigint NOT NULL DEFAULT 0,  -- The ids of messages below this position are forgotten.
    PRIMARY KEY (partition_id)
);

-- Lanes: a partition as one group sees it.

-- The position of a group in a partition, with the lease of the lane. Every update changes the index of ready lanes anyway, so
-- each is an epoch. The locks under which cursors are created keep them unique.
CREATE TABLE fairlane.cursors (
    partition_id bigint NOT NULL, group_id bigint NOT NULL, epoch bigint NOT NULL DEFAULT 0,
    committed bigint NOT NULL,  -- Everything below is finished.
    claimed bigint NOT NULL DEFAULT 0,  -- Unordered queues: positions below were delivered.
    ready_at timestamptz,  -- NULL: nothing to read. Past: may be claimed. Future: leased, or sleeping after a failure.
    lease uuid, lease_start bigint NOT NULL DEFAULT 0, lease_end bigint NOT NULL DEFAULT 0,
    leased_at timestamptz,  -- Time of the last delivery.
    last_lease uuid,  -- The last lease that its holder finished, to tell a repeated ack from a stale one.
    -- After a lost lease, messages below this position are delivered one at a time, to isolate a poison message.
    probe_until bigint NOT NULL DEFAULT 0,
    failing boolean NOT NULL DEFAULT false,  -- True if `failures` or `skips` has rows of this lane.
    -- The lane was set aside until it is resumed, by an operator or with a message without attempts left.
    parked boolean NOT NULL DEFAULT false,
    dead bigint NOT NULL DEFAULT 0,
    -- Expired messages that were dropped. Dead-lettered ones count as dead.
    expired bigint NOT NULL DEFAULT 0, PRIMARY KEY (partition_id, group_id, epoch)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- pop: the ready lanes of a group, longest-ready first. renew, release: the live leases of a group.
CREATE INDEX cursors_ready ON fairlane.cursors (group_id, ready_at) WHERE ready_at IS NOT NULL;

-- Unordered queues: ranges of unfinished positions that consumers hold. A whole batch is one row. Every change of a lane, here or
-- in `failures`, locks its cursor.
CREATE TABLE fairlane.claims (
    partition_id bigint NOT NULL, group_id bigint NOT NULL, first_pos bigint NOT NULL,
    upto bigint NOT NULL, token uuid NOT NULL, ends_at timestamptz NOT NULL, PRIMARY KEY (partition_id, group_id, first_pos)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- pop: expired claims. renew, release: the live claims of a group.
CREATE INDEX claims_ends ON fairlane.claims (group_id, ends_at);

-- Messages with failed attempts at or after the cursor. The fast path has none.
CREATE TABLE fairlane.failures (
    partition_id bigint NOT NULL, group_id bigint NOT NULL, position bigint NOT NULL,
    attempts int NOT NULL, retry_limit int, first_failed_at timestamptz NOT NULL, failed_at timestamptz NOT NULL,  -- NULL: the queue's.
    -- A message of an unordered queue to deliver again has `due_at`. With `token` it is leased until then. `alone`: it was in a
    -- lost batch, and is delivered alone, to isolate a poison message.
    due_at timestamptz, token uuid, alone boolean NOT NULL DEFAULT false,
    error text NOT NULL,
    traceback text,
    -- Earlier failures, oldest first, as [{"at": microseconds, "error": text, "traceback": text or null}]. The last one has its own columns.
    history jsonb NOT NULL DEFAULT '[]', PRIMARY KEY (partition_id, group_id, position)
);
CREATE INDEX failures_due ON fairlane.failures (group_id, due_at) WHERE due_at IS NOT NULL;  -- pop: messages that are due.
-- ack_unordered: finds redelivered messages that a consumer holds, however many others wait.
CREATE INDEX failures_out ON fairlane.failures (partition_id, group_id, token) WHERE token IS NOT NULL;

-- Dead letters, with the complete message.
CREATE TABLE fairlane.dead_letters (
    partition_id bigint NOT NULL, group_id bigint NOT NULL, position bigint NOT NULL,
    queue_id bigint NOT NULL, message_created_at timestamptz NOT NULL, attempts int NOT NULL,
    first_failed_at timestamptz NOT NULL, failed_at timestamptz NOT NULL, replayed_at timestamptz, replayed_as text,
    -- When to forward the letter to the queue that its queue names. NULL if it was forwarded, or none is named.
    forward_at timestamptz,
    error text NOT NULL,
    traceback text,
    history jsonb NOT NULL DEFAULT '[]',  -- Same format as in `failures`.
    message bytea NOT NULL, PRIMARY KEY (partition_id, group_id, position)
);
-- Lists a queue's dead letters, newest failure first.
CREATE INDEX dead_letters_failed ON fairlane.dead_letters (queue_id, failed_at);
-- forward: letters to forward.
CREATE INDEX dead_letters_forward ON fairlane.dead_letters (forward_at) WHERE forward_at IS NOT NULL;

-- Results of acks.
CREATE TABLE fairlane.results (
    partition_id bigint NOT NULL, group_id bigint NOT NULL, position bigint NOT NULL,
    created_at timestamptz NOT NULL, result bytea NOT NULL, PRIMARY KEY (partition_id, group_id, position)
);

-- Deliveries of groups whose queue has a rate, for as long as the rate counts them. Pops of such a group hold its row in `groups`.
CREATE TABLE fairlane.starts (
    group_id bigint NOT NULL,
    key text NOT NULL COLLATE "C",  -- Empty for the rate of the group.
    at timestamptz NOT NULL, n bigint NOT NULL, PRIMARY KEY (group_id, key, at)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX starts_at ON fairlane.starts (group_id, at);  -- pop: deliveries that no rate counts any more.

-- Cancelled messages, by group. Group 0 stands for groups that are created later.
CREATE TABLE fairlane.cancellations (
    partition_id bigint NOT NULL, group_id bigint NOT NULL, position bigint NOT NULL,
    token uuid,  -- The lease that held the message.
    cancelled_at timestamptz NOT NULL, PRIMARY KEY (partition_id, group_id, position)
);
-- renew, of_leases: the cancelled messages of a lease.
CREATE INDEX cancellations_lease ON fairlane.cancellations (group_id, token) WHERE token IS NOT NULL;

-- The latest progress of messages, as their handlers reported it. It counts while the lease that reported it holds the message.
CREATE TABLE fairlane.progress (
    partition_id bigint NOT NULL, group_id bigint NOT NULL, position bigint NOT NULL,
    token uuid NOT NULL, report bytea NOT NULL, reported_at timestamptz NOT NULL,
    PRIMARY KEY (partition_id, group_id, position)
);
CREATE INDEX progress_reported ON fairlane.progress (reported_at);  -- forget: old reports.

-- Ids of scheduled messages that were cancelled, for a while.
CREATE TABLE fairlane.cancelled_ids (
    partition_id bigint NOT NULL, transaction_id text COLLATE "C" NOT NULL, kept_until timestamptz NOT NULL,
    PRIMARY KEY (partition_id, transaction_id)
);
CREATE INDEX cancelled_ids_kept ON fairlane.cancelled_ids (kept_until);  -- forget: those to delete.

-- The latest unique message of each key. Its lane says whether it waits, runs or is finished.
CREATE TABLE fairlane.unique_keys (
    queue_id bigint NOT NULL, key text COLLATE "C" NOT NULL,  -- Hash of the key, or of type and payload.
    partition_id bigint NOT NULL,
    position bigint,  -- NULL while it is scheduled.
    transaction_id text NOT NULL, message_id text NOT NULL,
    due_at timestamptz,  -- Time of a scheduled message.
    PRIMARY KEY (queue_id, key)
);
CREATE INDEX unique_keys_place ON fairlane.unique_keys (partition_id, position);  -- forget: messages that every group finished.

-- Scheduled messages: those of one call and partition form a segment, in the order of their times. They get their positions when
-- they are due. One row per message would cost ten times as much.
CREATE TABLE fairlane.scheduled_segments (
    id uuid NOT NULL,
    partition_id bigint NOT NULL, queue_id bigint NOT NULL, partition_name text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    next_at timestamptz NOT NULL,  -- Time when its first message is due, or is retried while its queue is full.
    last_at timestamptz NOT NULL,  -- Time when its last message is due.
    n int NOT NULL,
    taken int NOT NULL DEFAULT 0,  -- Number of messages that were appended, from the first on.
    keyed boolean NOT NULL,  -- True if some of its ids are in scheduled_keys.
    PRIMARY KEY (id)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- due_scheduled: due messages, oldest first.
CREATE INDEX scheduled_segments_due ON fairlane.scheduled_segments (next_at, id);
-- find_scheduled: a message by its id, which contains the time of scheduling; purging a partition.
CREATE INDEX scheduled_segments_partition ON fairlane.scheduled_segments (partition_id, created_at);

-- The messages of a segment, separate from the row that changes when some of them are due. `due` is in microseconds since 1970.
CREATE TABLE fairlane.scheduled_messages (
    id uuid NOT NULL,
    due bigint[] NOT NULL, ends int[] NOT NULL, keys bigint[] NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (id)
);
ALTER TABLE fairlane.scheduled_messages ALTER body SET STORAGE EXTERNAL;

-- Ids that do not contain the time of scheduling.
CREATE TABLE fairlane.scheduled_keys (
    partition_id bigint NOT NULL, key bigint NOT NULL, segment_id uuid NOT NULL, PRIMARY KEY (partition_id, key)
);

-- Schedules, with the message to push at every tick.
CREATE TABLE fairlane.schedules (
    tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    options text NOT NULL, revision text NOT NULL,
    next_at timestamptz,  -- NULL while it is paused.
    paused_at timestamptz,
    last_at timestamptz,  -- The last tick that was pushed, and the queue that it was pushed to.
    last_queue text, last_partition text, PRIMARY KEY (tenant, name)
);
CREATE INDEX schedules_next ON fairlane.schedules (next_at) WHERE next_at IS NOT NULL;  -- due and next_in: the first to tick.

-- Operations: accepted pushes and acks that are not applied yet. Each is claimed and completed once, which moves no index entry
-- if its page has space.
CREATE TABLE fairlane.operations (
    partition_id bigint NOT NULL, group_id bigint NOT NULL, sequence bigint NOT NULL,  -- group 0 for pushes
    id uuid NOT NULL, type text NOT NULL, priority int NOT NULL, tenant text NOT NULL, queue text NOT NULL,
    partition_name text NOT NULL, "group" text NOT NULL, queue_id bigint NOT NULL, payload bytea NOT NULL,
    size int NOT NULL, messages int NOT NULL, status text NOT NULL DEFAULT 'pending', created_at timestamptz NOT NULL,
    started_at timestamptz, processed_at timestamptz, failed_at timestamptz, worker text,
    retries int NOT NULL DEFAULT 0, error text, result bytea,
    PRIMARY KEY (partition_id, group_id, sequence)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- Lookups, repeated enqueues, and removing old ones: an id begins with its creation time.
CREATE UNIQUE INDEX operations_id ON fairlane.operations (id);
-- Failed operations: lists, counts and removes them without reading others. By failed_at and not by status, which changes with
-- each claim and completion and would move index entries.
CREATE INDEX operations_failed ON fairlane.operations (id) WHERE failed_at IS NOT NULL;

-- Lanes with open operations. `ready_at` in the past: may be claimed. In the future: held by a worker, or waiting for a retry.
CREATE TABLE fairlane.operation_backlogs (
    partition_id bigint NOT NULL, group_id bigint NOT NULL,
    queue_id bigint NOT NULL, tenant text NOT NULL, queue text NOT NULL, partition_name text NOT NULL,
    "group" text NOT NULL, priority int NOT NULL, open int NOT NULL,
    messages bigint NOT NULL,  -- Messages of the open operations, which reserve capacity of the queue.
    next_sequence bigint NOT NULL,  -- Operations below are not open.
    ready_at timestamptz NOT NULL,
    moved_at timestamptz NOT NULL,  -- Time when the row was created, or an operation last ended.
    claim uuid,
    passing boolean NOT NULL DEFAULT false,  -- Set only inside the transaction that applies the lane's acks.
    PRIMARY KEY (partition_id, group_id)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- claim: ready lanes, by priority, then longest-ready first.
CREATE INDEX operation_backlogs_ready ON fairlane.operation_backlogs (priority, ready_at);
CREATE INDEX operation_backlogs_queue ON fairlane.operation_backlogs (queue_id);  -- Recounts of a queue's depth.

-- The next check of a partition by retention. Every partition with messages of a queue with rules has a row.
CREATE TABLE fairlane.expiries (
    partition_id bigint NOT NULL,
    queue_id bigint NOT NULL, due_at timestamptz NOT NULL, PRIMARY KEY (partition_id)
) WITH (fillfactor = 70);
CREATE INDEX expiries_due ON fairlane.expiries (due_at);  -- retention: due partitions, longest due first.

-- The rules behind the rows of `expiries`. After a change of rules, partitions get new rows in bounded steps: after this name.
-- NULL when all have one.
CREATE TABLE fairlane.retention_rules (
    queue_id bigint PRIMARY KEY, rules text NOT NULL, seed_after text COLLATE "C"
);

-- Deletions by queue, minute and rule.
CREATE TABLE fairlane.retention_minutes (
    queue_id bigint NOT NULL, at timestamptz NOT NULL, rule text NOT NULL,
    messages bigint NOT NULL, unread bigint NOT NULL, PRIMARY KEY (queue_id, at, rule)
);
CREATE INDEX retention_minutes_at ON fairlane.retention_minutes (at);  -- retention: old history to delete.

-- Deletions by partition and hour. By name, because the partition may be deleted.
CREATE TABLE fairlane.retention_hours (
    queue_id bigint NOT NULL, partition_name text COLLATE "C" NOT NULL, at timestamptz NOT NULL, rule text NOT NULL,
    messages bigint NOT NULL, unread bigint NOT NULL, PRIMARY KEY (queue_id, partition_name, at, rule)
);
CREATE INDEX retention_hours_at ON fairlane.retention_hours (at);  -- retention: old history to delete.

-- Cursors of the groups that count for the depth of a limited queue.
CREATE VIEW fairlane.counting AS
SELECT c.partition_id, c.group_id, c.committed, c.claimed
FROM fairlane.cursors c JOIN fairlane.groups g ON g.id = c.group_id
WHERE g.counts;
