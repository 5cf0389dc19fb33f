-- All tables, as a new database gets them. A table begins with the columns of its key.
--
-- Hot tables begin their key with `shard`, and every hot statement names one shard: on one PostgreSQL that costs nothing, on Citus it
-- is the distribution column. No foreign keys or triggers, which would not survive that.
CREATE SCHEMA IF NOT EXISTS fairlane;

-- Versions of the schema that were applied. `hash` is that of this file, where the tables were made by it.
CREATE TABLE fairlane.migrations (version int PRIMARY KEY, name text NOT NULL, hash text, applied_at timestamptz NOT NULL);

-- Which text of the functions is installed: another text replaces them at the next start.
CREATE TABLE fairlane.functions (one boolean PRIMARY KEY DEFAULT true CHECK (one), hash text NOT NULL);

-- The values of `shard`, chosen when the database was made.
CREATE TABLE fairlane.shards (shard int PRIMARY KEY);

-- Whose queues they are.
CREATE TABLE fairlane.tenants (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, quotas jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz  -- NULL: with the database itself.
);
INSERT INTO fairlane.tenants (name) VALUES ('default');

-- Queues, each with its options.
CREATE TABLE fairlane.queues (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint NOT NULL, name text NOT NULL, namespace text NOT NULL, task text NOT NULL, options jsonb NOT NULL,
    depth bigint NOT NULL DEFAULT 0,  -- Messages not yet finished by every group; kept only while options.max_size > 0.
    created_at timestamptz NOT NULL,
    paused_at timestamptz,  -- Set while an operator keeps it from being read.
    -- `retained` is asked by every push; `ruled` finds the queues that a pass of retention is about.
    retained boolean NOT NULL GENERATED ALWAYS AS (coalesce((options ->> 'retention_enabled')::boolean, false)) STORED,
    ruled boolean NOT NULL GENERATED ALWAYS AS (coalesce((options ->> 'retention_enabled')::boolean, false)
                                                OR coalesce((options ->> 'dead_letter_retention_seconds')::bigint, 0) > 0) STORED,
    UNIQUE (tenant_id, name)  -- A queue by its name; those of a tenant.
) WITH (fillfactor = 50);
CREATE INDEX queues_ruled ON fairlane.queues (id) WHERE ruled;  -- Retention: the queues with rules.
-- Acks: whether any queue is limited.
CREATE INDEX queues_limited ON fairlane.queues (id) WHERE (options ->> 'max_size')::bigint > 0;

-- Groups of consumers: each reads all of its queue.
CREATE TABLE fairlane.groups (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL, name text NOT NULL, mode text NOT NULL, from_at timestamptz,
    conflation boolean NOT NULL DEFAULT false,  -- Whether it gets of each partition only the newest message.
    look boolean NOT NULL DEFAULT false,  -- Made by a person's look, and not popped for by a consumer since.
    counts boolean NOT NULL DEFAULT true,  -- What it has not finished takes a place in a limited queue.
    created_at timestamptz NOT NULL,
    paused_at timestamptz,  -- Set while an operator keeps it from reading.
    -- Where making this group's cursors goes on: behind this partition name in this shard; NULL when all are made.
    seed_shard int, seed_after text COLLATE "C",
    UNIQUE (queue_id, name)  -- A group by its name; those of a queue.
);

-- Queues that were deleted and whose rows are still being removed.
CREATE TABLE fairlane.purges (queue_id bigint PRIMARY KEY, deleted_at timestamptz NOT NULL);

-- The number of the last change of the catalogue. Changes are numbered in commit order by the lock on its only row.
CREATE TABLE fairlane.catalogue (one boolean PRIMARY KEY DEFAULT true CHECK (one), version bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO fairlane.catalogue (version) VALUES (0);

-- Which queues changed, for what brokers remember of them.
CREATE TABLE fairlane.catalogue_changes (version bigint PRIMARY KEY, queue_id bigint NOT NULL);

-- The log: partitions, and the messages in them.

-- A row that is updated often is found by its newest epoch. While some transaction elsewhere stays open, none of the row's old
-- versions can be removed: a look-up by the id alone would walk over all of them, one that begins at the highest epoch meets the
-- living version first. Statements that look up one row thousands of times an hour do so; for all others the id is enough.

-- Ordered streams of a queue. An epoch of a partition is 16 pushes: the others touch no index, if there is room on their page. No
-- index but the key's may be unique, for the check would visit every version. That a queue has one partition of a name is kept by
-- the queue's lock, under which partitions are made.
CREATE TABLE fairlane.partitions (
    shard int NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, epoch bigint GENERATED ALWAYS AS (pushes >> 4) STORED,
    queue_id bigint NOT NULL, name text COLLATE "C" NOT NULL,
    head bigint NOT NULL DEFAULT 0, start bigint NOT NULL DEFAULT 0,  -- The next position, and the first one that is retained.
    pushes bigint NOT NULL DEFAULT 0, message_bytes_max int NOT NULL DEFAULT 0,
    -- The latest time inside any UUIDv7 transactionId stored here: a later id cannot be a duplicate.
    newest_id_ms bigint NOT NULL DEFAULT -1,
    -- The latest time of an id that lay ahead of the database's clock and is therefore in message_keys.
    keyed_until_ms bigint NOT NULL DEFAULT -1,
    -- Up to this time ids were pushed that may have been pushed before, so that a call which comes late may be a repeat of them.
    doubted_until_ms bigint NOT NULL DEFAULT 0,
    -- Pushes, and acks of any group, that were accepted and are not applied yet: while there are any, others must wait too.
    -- Operations are numbered under the partition's lock, so that their order is no clock's.
    open_operations int NOT NULL DEFAULT 0, open_acks int NOT NULL DEFAULT 0, next_operation bigint NOT NULL DEFAULT 0,
    -- A lane that becomes ready counts as if it had waited this much longer: its priority.
    priority_lead interval NOT NULL DEFAULT '0',
    created_at timestamptz NOT NULL, last_at timestamptz NOT NULL,
    paused_at timestamptz,  -- Set while an operator keeps it from being read.
    PRIMARY KEY (shard, id, epoch)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- A partition by its name; those of a queue. Without the shard, or a plan made for a small table may take this index for the key and
-- walk all partitions of the shard: PostgreSQL 18 skips over columns that are not asked for.
CREATE INDEX partitions_name ON fairlane.partitions (queue_id, name);
CREATE INDEX partitions_paused ON fairlane.partitions (queue_id) WHERE paused_at IS NOT NULL;  -- pauses: the few that are, of however many.

-- Messages, many in a row. A segment that fits into a page stays in it: cutting it into chunks of 2 KB costs more than all the rest of
-- a push.
CREATE TABLE fairlane.segments (
    shard int NOT NULL, partition_id bigint NOT NULL, first_pos bigint NOT NULL,
    n int NOT NULL, created_at timestamptz NOT NULL, checksum bigint NOT NULL,
    -- Payloads rarely shrink enough to pay for the time of compressing them.
    ends int[] NOT NULL, keys bigint[] NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (shard, partition_id, first_pos)
) WITH (toast_tuple_target = 8160);
ALTER TABLE fairlane.segments ALTER ends SET STORAGE EXTERNAL, ALTER keys SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL;

-- Ids that are not UUIDv7, or were old when they were pushed: the segments written at their time would not give them away.
CREATE TABLE fairlane.message_keys (
    shard int NOT NULL, partition_id bigint NOT NULL, key bigint NOT NULL,
    position bigint NOT NULL, created_at timestamptz NOT NULL, message_id text NOT NULL, transaction_id text NOT NULL,
    PRIMARY KEY (shard, partition_id, key)
);

-- Ids of messages that went before the window of their queue had passed, as the segment that held them.
CREATE TABLE fairlane.deleted_ids (
    shard int NOT NULL, partition_id bigint NOT NULL, created_at timestamptz NOT NULL, first_pos bigint NOT NULL,
    forget_at timestamptz NOT NULL,
    -- Keys do not compress, and trying to costs more than all else of a row. Ids of messages are 16 bytes each.
    keys bigint[] NOT NULL, message_ids bytea NOT NULL,
    -- NULL: the same as the messages', as where the broker made them. An element is NULL where message_keys has the id.
    transaction_ids uuid[], PRIMARY KEY (shard, partition_id, created_at, first_pos)
);
ALTER TABLE fairlane.deleted_ids ALTER keys SET STORAGE EXTERNAL, ALTER message_ids SET STORAGE EXTERNAL, ALTER transaction_ids SET STORAGE EXTERNAL;
CREATE INDEX deleted_ids_forget ON fairlane.deleted_ids (shard, forget_at);  -- Retention: those whose window has passed.

-- Messages that pops step over: deleted ones have the group 0, those that a group finished or gave up on ahead of its cursor have that
-- group. A cursor with one of its own ahead is marked as failing, as with a row of `failures`.
CREATE TABLE fairlane.skips (
    shard int NOT NULL, partition_id bigint NOT NULL, position bigint NOT NULL, group_id bigint NOT NULL,
    created_at timestamptz NOT NULL, PRIMARY KEY (shard, partition_id, position, group_id)
);

-- Partitions whose log below `start` still has to go.
CREATE TABLE fairlane.trims (
    shard int NOT NULL, partition_id bigint NOT NULL,
    cleared bigint NOT NULL DEFAULT 0,  -- Of what lies below this position nothing is remembered.
    PRIMARY KEY (shard, partition_id)
);

-- Lanes: a partition as one group sees it.

-- How far a group is in a partition, and who holds the lane until when. Every update touches the index of ready lanes anyway, so each is
-- an epoch. That a group has one cursor in a partition is kept by the locks under which cursors are made.
CREATE TABLE fairlane.cursors (
    shard int NOT NULL, partition_id bigint NOT NULL, group_id bigint NOT NULL, epoch bigint NOT NULL DEFAULT 0,
    committed bigint NOT NULL,  -- Everything below is finished.
    claimed bigint NOT NULL DEFAULT 0,  -- Unordered queues: positions below were handed out.
    ready_at timestamptz,  -- NULL: nothing to read. Past: may be claimed. Future: leased, or sleeping after a failure.
    lease uuid, lease_start bigint NOT NULL DEFAULT 0, lease_end bigint NOT NULL DEFAULT 0,
    leased_at timestamptz,  -- When somebody took something of it last.
    last_lease uuid,  -- The lease that its holder finished last: a repeated ack is told apart from a stale one.
    -- After a lost lease messages below are delivered one at a time, so that the poison is found alone.
    probe_until bigint NOT NULL DEFAULT 0,
    failing boolean NOT NULL DEFAULT false,  -- Whether `failures` or `skips` has rows of this lane.
    -- The lane was set aside, by an operator or with a message whose attempts are used up, until it is resumed.
    parked boolean NOT NULL DEFAULT false,
    dead bigint NOT NULL DEFAULT 0,
    -- Messages dropped because they were too old; those that were dead-lettered for it count as dead.
    expired bigint NOT NULL DEFAULT 0, PRIMARY KEY (shard, partition_id, group_id, epoch)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- pop: the lanes of a group that are ready, longest first. renew, release: the live leases of a group.
CREATE INDEX cursors_ready ON fairlane.cursors (shard, group_id, ready_at) WHERE ready_at IS NOT NULL;

-- Unordered queues: ranges of positions that consumers hold and have not finished. A whole batch is one row. Whoever changes the rows of
-- a lane, here or in `failures`, holds its cursor.
CREATE TABLE fairlane.claims (
    shard int NOT NULL, partition_id bigint NOT NULL, group_id bigint NOT NULL, first_pos bigint NOT NULL,
    upto bigint NOT NULL, token uuid NOT NULL, ends_at timestamptz NOT NULL, PRIMARY KEY (shard, partition_id, group_id, first_pos)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- pop: claims that ran out. renew, release: the live ones of a group.
CREATE INDEX claims_ends ON fairlane.claims (shard, group_id, ends_at);

-- Messages that failed and were not passed yet; the happy path has none.
CREATE TABLE fairlane.failures (
    shard int NOT NULL, partition_id bigint NOT NULL, group_id bigint NOT NULL, position bigint NOT NULL,
    attempts int NOT NULL, retry_limit int, first_failed_at timestamptz NOT NULL, failed_at timestamptz NOT NULL,  -- NULL: the queue's.
    -- A message of an unordered queue that comes again has `due_at`. With `token` it is out again until then. `alone`: it was in a
    -- batch that was lost, and is handed out by itself, so that the poison is found.
    due_at timestamptz, token uuid, alone boolean NOT NULL DEFAULT false,
    error text NOT NULL,
    -- Earlier failures, oldest first, as [{"at": microseconds, "error": text}]; the last one has columns of its own.
    history jsonb NOT NULL DEFAULT '[]', PRIMARY KEY (shard, partition_id, group_id, position)
);
CREATE INDEX failures_due ON fairlane.failures (shard, group_id, due_at) WHERE due_at IS NOT NULL;  -- pop: messages that are due.
-- ack_unordered: messages of a lane that came again and are held by a consumer, however many others wait for their time.
CREATE INDEX failures_out ON fairlane.failures (shard, partition_id, group_id, token) WHERE token IS NOT NULL;

-- Messages given up on, whole.
CREATE TABLE fairlane.dead_letters (
    shard int NOT NULL, partition_id bigint NOT NULL, group_id bigint NOT NULL, position bigint NOT NULL,
    queue_id bigint NOT NULL, message_created_at timestamptz NOT NULL, attempts int NOT NULL,
    first_failed_at timestamptz NOT NULL, failed_at timestamptz NOT NULL, replayed_at timestamptz, replayed_as text,
    -- When to append the letter to the queue that its queue names for that; NULL: it was, or no queue is named.
    forward_at timestamptz,
    error text NOT NULL,
    history jsonb NOT NULL DEFAULT '[]',  -- As that of `failures`.
    message bytea NOT NULL, PRIMARY KEY (shard, partition_id, group_id, position)
);
-- Lists a queue's dead letters, newest failure first.
CREATE INDEX dead_letters_failed ON fairlane.dead_letters (shard, queue_id, failed_at);
-- forward: letters that wait for it.
CREATE INDEX dead_letters_forward ON fairlane.dead_letters (shard, forward_at) WHERE forward_at IS NOT NULL;

-- What an ack carried as its result.
CREATE TABLE fairlane.results (
    shard int NOT NULL, partition_id bigint NOT NULL, group_id bigint NOT NULL, position bigint NOT NULL,
    created_at timestamptz NOT NULL, result bytea NOT NULL, PRIMARY KEY (shard, partition_id, group_id, position)
);

-- Scheduled messages: those of one call and partition are a segment, in the order in which they are due. They get their
-- positions when they are due; a row for each would cost ten times as much.
CREATE TABLE fairlane.scheduled_segments (
    shard int NOT NULL, id uuid NOT NULL,
    partition_id bigint NOT NULL, queue_id bigint NOT NULL, partition_name text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    next_at timestamptz NOT NULL,  -- When its first message is due, or is tried again while its queue is full.
    last_at timestamptz NOT NULL,  -- When its last message is due.
    n int NOT NULL,
    taken int NOT NULL DEFAULT 0,  -- How many of them, from the first, were appended already.
    keyed boolean NOT NULL,  -- Whether ids of it are in scheduled_keys.
    PRIMARY KEY (shard, id)
) WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- due_scheduled: what is due, oldest first.
CREATE INDEX scheduled_segments_due ON fairlane.scheduled_segments (shard, next_at, id);
-- find_scheduled: a message by its id, which says when it was scheduled; purging a partition.
CREATE INDEX scheduled_segments_partition ON fairlane.scheduled_segments (shard, partition_id, created_at);

-- The messages of a segment, apart from the row that changes when some of them are due. `due` is in microseconds since 1970.
CREATE TABLE fairlane.scheduled_messages (
    shard int NOT NULL, id uuid NOT NULL,
    due bigint[] NOT NULL, ends int[] NOT NULL, keys bigint[] NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (shard, id)
);
ALTER TABLE fairlane.scheduled_messages ALTER body SET STORAGE EXTERNAL;

-- Ids that do not say when they were scheduled.
CREATE TABLE fairlane.scheduled_keys (
    shard int NOT NULL, partition_id bigint NOT NULL, key bigint NOT NULL, segment_id uuid NOT NULL, PRIMARY KEY (shard, partition_id, key)
);

-- Schedules: what is pushed at every tick.
CREATE TABLE fairlane.schedules (
    tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    options text NOT NULL, revision text NOT NULL,
    next_at timestamptz,  -- NULL while it is paused.
    paused_at timestamptz, PRIMARY KEY (tenant, name)
);
CREATE INDEX schedules_next ON fairlane.schedules (next_at) WHERE next_at IS NOT NULL;  -- due and next_in: the first to tick.

-- Operations: one push or ack each that was accepted and is not applied yet. It is claimed and completed once, which moves
-- no index entry as long as there is room in its page.
CREATE TABLE fairlane.operations (
    shard int NOT NULL, partition_id bigint NOT NULL, group_id bigint NOT NULL, sequence bigint NOT NULL,  -- group 0 for pushes
    id uuid NOT NULL, type text NOT NULL, priority int NOT NULL, tenant text NOT NULL, queue text NOT NULL,
    partition_name text NOT NULL, "group" text NOT NULL, queue_id bigint NOT NULL, payload bytea NOT NULL,
    size int NOT NULL, messages int NOT NULL, status text NOT NULL DEFAULT 'pending', created_at timestamptz NOT NULL,
    started_at timestamptz, processed_at timestamptz, failed_at timestamptz, worker text,
    timeout_seconds int NOT NULL DEFAULT 30, retries int NOT NULL DEFAULT 0, error text, result bytea,
    PRIMARY KEY (shard, partition_id, group_id, sequence)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- Look-ups, repeats of an enqueue, and removing old ones: an id begins with the time it was made at.
CREATE UNIQUE INDEX operations_id ON fairlane.operations (shard, id);
-- Operations that failed: listed, counted and removed without a look at the others. By failed_at, not by status: that changes
-- with each operation that is begun and completed, which then would move index entries.
CREATE INDEX operations_failed ON fairlane.operations (shard, id) WHERE failed_at IS NOT NULL;

-- Lanes that have open operations. `ready_at`: past, may be claimed; future, held by a worker or waiting for a retry.
CREATE TABLE fairlane.operation_backlogs (
    shard int NOT NULL, partition_id bigint NOT NULL, group_id bigint NOT NULL,
    queue_id bigint NOT NULL, tenant text NOT NULL, queue text NOT NULL, partition_name text NOT NULL,
    "group" text NOT NULL, priority int NOT NULL, open int NOT NULL,
    messages bigint NOT NULL,  -- Of the open operations in all: the places that they hold in their queue.
    next_sequence bigint NOT NULL,  -- Nothing below is open.
    ready_at timestamptz NOT NULL,
    moved_at timestamptz NOT NULL,  -- When the lane was made, or an operation of it ended last.
    claim uuid,
    passing boolean NOT NULL DEFAULT false,  -- Set only inside the transaction that applies the lane's acks.
    PRIMARY KEY (shard, partition_id, group_id)
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- claim: lanes that are ready, best priority first, longest-ready first.
CREATE INDEX operation_backlogs_ready ON fairlane.operation_backlogs (shard, priority, ready_at);
CREATE INDEX operation_backlogs_queue ON fairlane.operation_backlogs (shard, queue_id);  -- Counting the depth of a queue anew.

-- When retention looks at a partition next. Every partition of a retained queue that holds messages has a row.
CREATE TABLE fairlane.expiries (
    shard int NOT NULL, partition_id bigint NOT NULL,
    queue_id bigint NOT NULL, due_at timestamptz NOT NULL, PRIMARY KEY (shard, partition_id)
) WITH (fillfactor = 70);
CREATE INDEX expiries_due ON fairlane.expiries (shard, due_at);  -- Retention: the partitions that are due, longest first.

-- The rules that the rows of `expiries` were made by. Partitions of a queue whose rules changed get theirs in bounded steps:
-- behind this name in this shard; NULL when all have one.
CREATE TABLE fairlane.retention_rules (
    queue_id bigint PRIMARY KEY, rules text NOT NULL, seed_shard int, seed_after text COLLATE "C" NOT NULL
);

-- What went, by queue, minute and rule.
CREATE TABLE fairlane.retention_minutes (
    shard int NOT NULL, queue_id bigint NOT NULL, at timestamptz NOT NULL, rule text NOT NULL,
    messages bigint NOT NULL, unread bigint NOT NULL, PRIMARY KEY (shard, queue_id, at, rule)
);
CREATE INDEX retention_minutes_at ON fairlane.retention_minutes (shard, at);  -- Forgetting history that is too old.

-- The same by partition and hour. By name: a partition that went is still known here.
CREATE TABLE fairlane.retention_hours (
    shard int NOT NULL, queue_id bigint NOT NULL, partition_name text COLLATE "C" NOT NULL, at timestamptz NOT NULL, rule text NOT NULL,
    messages bigint NOT NULL, unread bigint NOT NULL, PRIMARY KEY (shard, queue_id, partition_name, at, rule)
);
CREATE INDEX retention_hours_at ON fairlane.retention_hours (shard, at);  -- Forgetting history that is too old.

-- Events that consumers told of a message.
CREATE TABLE fairlane.traces (
    shard int NOT NULL, partition_id bigint NOT NULL, transaction_id text NOT NULL, id text NOT NULL,
    created_at timestamptz NOT NULL, group_name text NOT NULL, event_type text NOT NULL, data bytea NOT NULL,
    names text NOT NULL,  -- A JSON array.
    PRIMARY KEY (shard, partition_id, transaction_id, id)
);

-- The names that an event was told under, newest last.
CREATE TABLE fairlane.trace_names (
    shard int NOT NULL, tenant_id bigint NOT NULL, name text COLLATE "C" NOT NULL, created_at timestamptz NOT NULL, trace_id text NOT NULL,
    partition_id bigint NOT NULL, transaction_id text NOT NULL, PRIMARY KEY (shard, tenant_id, name, created_at, trace_id)
);
-- Purging a partition and deleting a message: the names of its traces.
CREATE INDEX trace_names_message ON fairlane.trace_names (shard, partition_id, transaction_id);

-- Where the messages are that carry a traceId; others have no row.
CREATE TABLE fairlane.traced (
    shard int NOT NULL, trace_id uuid NOT NULL, partition_id bigint NOT NULL, position bigint NOT NULL,
    PRIMARY KEY (shard, trace_id, partition_id, position)
);
-- Forgets the messages of a partition that are gone.
CREATE INDEX traced_position ON fairlane.traced (shard, partition_id, position);

-- Streams that were registered.
CREATE TABLE fairlane.stream_queries (
    id uuid PRIMARY KEY,
    tenant_id bigint NOT NULL, name text NOT NULL, source_queue text NOT NULL, sink_queue text,
    config_hash text NOT NULL, updated_at timestamptz NOT NULL,
    UNIQUE (tenant_id, name)  -- A stream by its name.
);

-- What a stream keeps of a partition, by key.
CREATE TABLE fairlane.stream_state (
    shard int NOT NULL, partition_id bigint NOT NULL, query_id uuid NOT NULL, key text COLLATE "C" NOT NULL,
    window_end double precision, updated_at timestamptz NOT NULL, value bytea NOT NULL,
    PRIMARY KEY (shard, partition_id, query_id, key)
) WITH (fillfactor = 70);
CREATE INDEX stream_state_query ON fairlane.stream_state (shard, query_id);  -- Dropping all state of a query.

-- Sources: how far the records of somebody's API were read, and who reads them.
CREATE TABLE fairlane.sources (
    tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    revision text NOT NULL DEFAULT '', cursor text, token bigint NOT NULL DEFAULT 1, leased_until timestamptz,
    created_at timestamptz NOT NULL, sweep int NOT NULL DEFAULT 0, sweeping boolean NOT NULL DEFAULT false,
    sweep_cursor text, swept_at timestamptz, committed_at timestamptz, records bigint NOT NULL DEFAULT 0, PRIMARY KEY (tenant, name)
);

-- What is known of each record: the hash of its content, and the last sweep that saw it. All in shard 0: a source knows no other.
CREATE TABLE fairlane.shadow_records (
    shard int NOT NULL, source_id bigint NOT NULL, key text COLLATE "C" NOT NULL,
    hash text NOT NULL, sweep int NOT NULL, PRIMARY KEY (shard, source_id, key)
);
-- unseen: records that a sweep did not see.
CREATE INDEX shadow_records_sweep ON fairlane.shadow_records (shard, source_id, sweep);

-- The content of each record as its last event told it, and the partition of its events. Beside what sweeps mark.
CREATE TABLE fairlane.shadow_copies (
    shard int NOT NULL, source_id bigint NOT NULL, key text COLLATE "C" NOT NULL,
    partition text NOT NULL, data bytea NOT NULL, PRIMARY KEY (shard, source_id, key)
);

-- Specs that were applied, every version of each.
CREATE TABLE fairlane.specs (
    tenant text COLLATE "C" NOT NULL, version bigint NOT NULL,
    app text COLLATE "C" NOT NULL, hash text NOT NULL, applied_by text NOT NULL, applied_at timestamptz NOT NULL,
    source text NOT NULL, document text NOT NULL, PRIMARY KEY (tenant, version)
);
CREATE INDEX specs_app ON fairlane.specs (tenant, app, version);  -- in_force and versions: the latest of an app.

-- Queues declared by the specs in force. A queue is always created with these options.
CREATE TABLE fairlane.declared_queues (
    tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, app text COLLATE "C" NOT NULL, options jsonb NOT NULL,
    mapped boolean NOT NULL,  -- Whether its messages become commands.
    PRIMARY KEY (tenant, name)
);

-- What handlers did once for a message, so that another attempt need not do it again.
CREATE TABLE fairlane.effects (
    shard int NOT NULL, tenant text COLLATE "C" NOT NULL, partition_id bigint NOT NULL, key text COLLATE "C" NOT NULL,
    value bytea NOT NULL, kept_until timestamptz NOT NULL, PRIMARY KEY (shard, tenant, partition_id, key)
);
CREATE INDEX effects_kept_until ON fairlane.effects (shard, kept_until);  -- keep: those whose time is over.

-- Workers that told of themselves, each with what it said last.
CREATE TABLE fairlane.workers (
    tenant text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
    facts text NOT NULL, seen_at timestamptz NOT NULL, PRIMARY KEY (tenant, id)
);

-- Keys of encrypted queues, each sealed by a key that the operator holds.
CREATE TABLE fairlane.data_keys (
    id bytea PRIMARY KEY, queue_id bigint NOT NULL, kek text NOT NULL, wrapped bytea NOT NULL, created_at timestamptz NOT NULL
);
CREATE INDEX data_keys_queue ON fairlane.data_keys (queue_id);  -- All keys of a queue: for a replay, and to delete them with it.

-- Keys of callers. A secret is nowhere: it is known by its SHA-256.
CREATE TABLE fairlane.api_keys (
    id text PRIMARY KEY, tenant text NOT NULL, name text NOT NULL, role text, scopes text NOT NULL,
    hash bytea NOT NULL, old_hash bytea, old_until timestamptz,
    created_at timestamptz NOT NULL, created_by text NOT NULL, expires_at timestamptz, used_at timestamptz, revoked_at timestamptz
);
CREATE UNIQUE INDEX api_keys_name ON fairlane.api_keys (tenant, name) WHERE revoked_at IS NULL;  -- A name is free again when its key is revoked.

-- Browsers that logged in. `hash` is of the id in their cookie, `key_hash` of the key they logged in with.
CREATE TABLE fairlane.sessions (
    hash bytea PRIMARY KEY, tenant text NOT NULL, owner text NOT NULL, key_hash bytea, caller text,
    created_at timestamptz NOT NULL, expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_owner ON fairlane.sessions (tenant, owner, created_at);  -- The oldest of an owner, which ends when there are too many.

-- Who did what. Nothing is changed, and only the oldest are deleted. `hash` is over the entry and the hash of the one before it, which is `previous`.
CREATE TABLE fairlane.audit_entries (
    number bigint PRIMARY KEY, at timestamptz NOT NULL, tenant text NOT NULL, caller text NOT NULL, action text NOT NULL,
    target text NOT NULL, outcome text NOT NULL, source text NOT NULL, began bigint, hash bytea NOT NULL, previous bytea NOT NULL
);
CREATE UNIQUE INDEX audit_entries_began ON fairlane.audit_entries (began) WHERE began IS NOT NULL;  -- The end of an action, and the entry that it began with.
-- The last of them, the only row, which whoever adds some locks: entries that were taken from the end are missed.
CREATE TABLE fairlane.audit_head (one boolean PRIMARY KEY DEFAULT true CHECK (one), number bigint NOT NULL, hash bytea NOT NULL);
INSERT INTO fairlane.audit_head (number, hash) VALUES (0, '');

-- Flags: what operators turned on or off for all brokers.
CREATE TABLE fairlane.flags (name text PRIMARY KEY, enabled boolean NOT NULL, changed_at timestamptz NOT NULL);

-- Work that one broker at a time does for all of them. A token names one time of leading, and is never used again.
CREATE TABLE fairlane.leadership (
    name text PRIMARY KEY, token bigint NOT NULL, leads_until timestamptz NOT NULL, rests_until timestamptz NOT NULL
);

-- Cursors of the groups that count for the depth of a limited queue.
CREATE VIEW fairlane.counting AS
SELECT c.shard, c.partition_id, c.group_id, c.committed, c.claimed
FROM fairlane.cursors c JOIN fairlane.groups g ON g.id = c.group_id
WHERE g.counts;
