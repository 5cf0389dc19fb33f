-- All tables, as a new file gets them: the same as on PostgreSQL, without `shard` and epochs, which one writer does not need. A table
-- begins with the columns of its key.
--
-- Times are microseconds since 1970. Ids come from AUTOINCREMENT, so that an id kept by a client never names something made later.

-- Versions of the schema that were applied. `hash` is that of this file, where the tables were made by it.
create table migrations (version integer primary key, name text not null, hash text, applied_at text not null) strict;

-- Numbers that outlive the process, as the last time that was stored.
create table meta (key text primary key, value integer not null) without rowid, strict;

-- Whose queues they are.
create table tenants (
    id integer primary key autoincrement, name text not null unique, quotas text not null default '{}',
    created_at integer  -- null: with the database itself.
) strict;
insert into tenants (name) values ('default');

-- Queues, each with its options.
create table queues (
    id integer primary key autoincrement,
    tenant_id integer not null, name text not null, namespace text not null, task text not null, options text not null,
    depth integer not null default 0,  -- Messages not yet finished by every group; kept only while options.max_size > 0.
    created_at integer not null,
    paused_at integer,  -- Set while an operator keeps it from being read.
    unique (tenant_id, name)  -- A queue by its name; those of a tenant.
) strict;

-- Groups of consumers: each reads all of its queue.
create table groups (
    id integer primary key autoincrement,
    queue_id integer not null, name text not null, mode text not null, from_at integer,
    conflation integer not null default 0,  -- Whether it gets of each partition only the newest message.
    look integer not null default 0,  -- Made by a person's look, and not popped for by a consumer since.
    counts integer not null default 1,  -- What it has not finished takes a place in a limited queue.
    created_at integer not null,
    paused_at integer,  -- Set while an operator keeps it from reading.
    seeding integer not null,  -- The partition id from which cursors may still be missing; 0 when none is.
    unique (queue_id, name)  -- A group by its name; those of a queue.
) strict;

-- Deleted queues whose rows still have to go.
create table purges (queue_id integer primary key) strict;

-- Which queues changed, for what brokers remember of them.
create table catalogue_changes (version integer primary key autoincrement, queue_id integer not null) strict;

-- The log: partitions, and the messages in them.

-- Ordered streams of a queue.
create table partitions (
    id integer primary key autoincrement,
    queue_id integer not null, name text not null,
    head integer not null default 0, start integer not null default 0,  -- The next position, and the first one that is retained.
    -- The latest time inside any UUIDv7 transactionId stored here: a later id cannot be a duplicate.
    newest_id_at integer not null default 0,
    -- The latest time of an id that lay ahead of the clock and is therefore in message_keys.
    keyed_until integer not null default 0,
    -- Up to this time ids were pushed that may have been pushed before, so that a call which comes late may be a repeat of them.
    doubted_until integer not null default 0,
    -- Pushes that were accepted and are not applied yet: while there are any, others must wait too. Operations are numbered in their
    -- partition, so that their order is no clock's.
    open_operations integer not null default 0, next_operation integer not null default 0,
    -- A lane that becomes ready counts as if it had waited this much longer, in microseconds: its priority.
    priority_lead integer not null default 0,
    created_at integer not null, last_at integer not null default 0,
    paused_at integer,  -- Set while an operator keeps it from being read.
    unique (queue_id, name)  -- A partition by its name.
) strict;
create index partitions_queue on partitions (queue_id);  -- Seeding a group and purging a queue: partitions by id, in bounded steps.
create index partitions_paused on partitions (queue_id) where paused_at is not null;  -- pauses: the few that are, of however many.

-- Messages, many in a row. A rowid table: new rows of all partitions go to the same last pages.
create table segments (
    partition_id integer not null, first_pos integer not null,
    n integer not null, created_at integer not null, checksum integer not null, ends text not null,
    keys blob not null, body blob not null, primary key (partition_id, first_pos)
) strict;

-- Ids that are not UUIDv7, or were old when they were pushed: the segments written at their time would not give them away.
create table message_keys (
    partition_id integer not null, key integer not null,
    transaction_id text not null, message_id text not null, position integer not null, created_at integer not null,
    primary key (partition_id, key)
) without rowid, strict;

-- Ids of messages that went before the window of their queue had passed, as the segment that held them. Ids are 16 bytes each.
create table deleted_ids (
    partition_id integer not null, created_at integer not null, first_pos integer not null,
    forget_at integer not null, keys blob not null, message_ids blob not null,
    transaction_ids blob,  -- Null: the same as the messages', as where the broker made them. Zeros where message_keys has the id.
    primary key (partition_id, created_at, first_pos)
) strict;
create index deleted_ids_forget on deleted_ids (forget_at);  -- Retention: those whose window has passed.

-- Messages that pops step over: deleted ones have the group 0, those that a group finished or gave up on ahead of its cursor have that
-- group. A cursor with one of its own ahead is marked as failing, as with a row of `failures`.
create table skips (
    partition_id integer not null, position integer not null, group_id integer not null,
    created_at integer not null, primary key (partition_id, position, group_id)
) without rowid, strict;

-- Partitions whose log below `start` still has to go.
create table trims (
    partition_id integer primary key,
    cleared integer not null default 0  -- Of what lies below this position nothing is remembered.
) strict;

-- Lanes: a partition as one group sees it.

-- How far a group is in a partition, and who holds the lane until when.
create table cursors (
    partition_id integer not null, group_id integer not null,
    committed integer not null,  -- Everything below is finished.
    claimed integer not null default 0,  -- Unordered queues: positions below were handed out.
    ready_at integer,  -- Null: nothing to read. Past: may be claimed. Future: leased, or sleeping after a failure.
    lease blob, lease_start integer, lease_end integer,
    leased_at integer,  -- When somebody took something of it last.
    last_lease blob,  -- The lease that its holder finished last: a repeated ack is told apart from a stale one.
    -- After a lost lease messages below are delivered one at a time, so that the poison is found alone.
    probe_until integer not null default 0,
    failing integer not null default 0,  -- Whether `failures` or `skips` has rows of this lane.
    -- The lane was set aside, by an operator or with a message whose attempts are used up, until it is resumed.
    parked integer not null default 0,
    dead integer not null default 0,
    -- Messages dropped because they were too old; those that were dead-lettered for it count as dead.
    expired integer not null default 0, primary key (partition_id, group_id)
) without rowid, strict;
-- pop: the lanes of a group that are ready, longest first. renew, release: the live leases of a group.
create index cursors_ready on cursors (group_id, ready_at) where ready_at is not null;

-- Unordered queues: ranges of positions that consumers hold and have not finished. A whole batch is one row.
create table claims (
    partition_id integer not null, group_id integer not null, first_pos integer not null,
    upto integer not null, token blob not null, ends_at integer not null, primary key (partition_id, group_id, first_pos)
) without rowid, strict;
create index claims_ends on claims (group_id, ends_at);  -- pop: claims that ran out. renew, release: the live ones of a group.

-- Messages that failed and were not passed yet; the happy path has none.
create table failures (
    partition_id integer not null, group_id integer not null, position integer not null,
    attempts integer not null, retry_limit integer, first_failed_at integer not null, failed_at integer not null,  -- null: the queue's.
    -- A message of an unordered queue that comes again has `due_at`. With `token` it is out again until then. `alone`: it was in a
    -- batch that was lost, and is handed out by itself, so that the poison is found.
    due_at integer, token blob, alone integer not null default 0,
    error text not null,
    -- Earlier failures, oldest first, as [{"at": microseconds, "error": text}]; the last one has columns of its own.
    history text not null default '[]', primary key (partition_id, group_id, position)
) strict;
-- pop: which lanes have messages that are due, without a look at each of them.
create index failures_due on failures (group_id, due_at, partition_id) where due_at is not null;
-- ack_unordered: messages of a lane that came again and are held by a consumer, however many others wait for their time.
create index failures_out on failures (partition_id, group_id, token) where token is not null;

-- Messages given up on, whole.
create table dead_letters (
    partition_id integer not null, group_id integer not null, position integer not null,
    queue_id integer not null, message_created_at integer not null, attempts integer not null,
    first_failed_at integer not null, failed_at integer not null, replayed_at integer, replayed_as text,
    -- When to append the letter to the queue that its queue names for that; null: it was, or no queue is named.
    forward_at integer,
    error text not null,
    history text not null default '[]',  -- As that of `failures`.
    message blob not null, primary key (partition_id, group_id, position)
) strict;
-- Lists, replays and purges the dead letters of a queue by time.
create index dead_letters_failed on dead_letters (queue_id, failed_at);
create index dead_letters_forward on dead_letters (forward_at) where forward_at is not null;  -- forward: letters that wait for it.

-- What an ack carried as its result.
create table results (
    partition_id integer not null, group_id integer not null, position integer not null,
    created_at integer not null, result blob not null, primary key (partition_id, group_id, position)
) strict;

-- Scheduled messages: those of one call and partition are a segment, in the order in which they are due. They get their
-- positions when they are due; a row for each would cost ten times as much.
create table scheduled_segments (
    id integer primary key,
    partition_id integer not null, queue_id integer not null, partition_name text not null, created_at integer not null,
    next_at integer not null,  -- When its first message is due, or is tried again while its queue is full.
    last_at integer not null,  -- When its last message is due.
    n integer not null,
    taken integer not null,  -- How many of them, from the first, were appended already.
    keyed integer not null  -- Whether ids of it are in `scheduled_keys`.
) strict;
create index scheduled_segments_due on scheduled_segments (next_at, id);  -- due: what is due, oldest first.
-- segments_of_time: a message by its id, which says when it was scheduled; purging a partition.
create index scheduled_segments_partition on scheduled_segments (partition_id, created_at);

-- The messages of a segment, apart from the row that changes when some of them are due.
create table scheduled_messages (
    id integer primary key,
    due text not null, ends text not null, keys text not null, body blob not null
) strict;

-- Ids that do not say when they were scheduled.
create table scheduled_keys (
    partition_id integer not null, key integer not null,
    segment_id integer not null, primary key (partition_id, key)
) without rowid, strict;

-- Schedules: what is pushed at every tick.
create table schedules (
    tenant text not null, name text not null,
    options text not null, revision text not null,
    next_at integer,  -- Null while it is paused.
    paused_at integer, primary key (tenant, name)
) without rowid, strict;
create index schedules_next on schedules (next_at) where next_at is not null;  -- due and next_in: the first to tick.

-- Operations: one push or ack each that was accepted and is not applied yet.
create table operations (
    partition_id integer not null, group_id integer not null, sequence integer not null,  -- group 0 for pushes
    id blob not null unique,
    type text not null, priority integer not null, tenant text not null, queue text not null, partition_name text not null,
    "group" text not null, queue_id integer not null, payload blob not null, size integer not null, messages integer not null,
    status text not null default 'pending', created_at integer not null, started_at integer, processed_at integer,
    failed_at integer, worker text, timeout_seconds integer not null default 30, retries integer not null default 0,
    error text, result blob, primary key (partition_id, group_id, sequence)
) strict;
-- Operations that failed: listed, counted and removed without a look at the others.
create index operations_failed on operations (id) where failed_at is not null;

-- Lanes that have open operations. `ready_at`: past, may be claimed; future, held by a worker or waiting for a retry.
create table operation_backlogs (
    partition_id integer not null, group_id integer not null,
    queue_id integer not null, tenant text not null, queue text not null, partition_name text not null,
    "group" text not null, priority integer not null, open integer not null,
    messages integer not null,  -- Of the open operations in all: the places that they hold in their queue.
    next_sequence integer not null,  -- Nothing below is open.
    ready_at integer not null,
    moved_at integer not null,  -- When the lane was made, or an operation of it ended last.
    claim blob, primary key (partition_id, group_id)
) without rowid, strict;
-- claim: lanes that are ready, best priority first, longest-ready first.
create index operation_backlogs_ready on operation_backlogs (priority, ready_at);
create index operation_backlogs_queue on operation_backlogs (queue_id);  -- Counting the depth of a queue anew.

-- When retention looks at a partition next. Every partition of a retained queue that holds messages has a row.
create table expiries (partition_id integer primary key, due_at integer not null) strict;
create index expiries_due on expiries (due_at);  -- Retention: the partitions that are due, longest first.

-- The rules that the rows of `expiries` were made by. Partitions of a queue whose rules changed get theirs in bounded steps: from
-- this id on; null when all have one.
create table retention_rules (queue_id integer primary key, rules text not null, seed_from integer) strict;

-- What went, by queue, minute and rule.
create table retention_minutes (
    queue_id integer not null, at integer not null, rule text not null,
    messages integer not null, unread integer not null, primary key (queue_id, at, rule)
) without rowid, strict;
create index retention_minutes_at on retention_minutes (at);  -- Forgetting history that is too old.

-- The same by partition and hour. By name: a partition that went is still known here.
create table retention_hours (
    queue_id integer not null, partition_name text not null, at integer not null, rule text not null,
    messages integer not null, unread integer not null, primary key (queue_id, partition_name, at, rule)
) without rowid, strict;
create index retention_hours_at on retention_hours (at);  -- Forgetting history that is too old.

-- Events that consumers told of a message.
create table traces (
    partition_id integer not null, transaction_id text not null, id text not null,
    created_at integer not null, group_name text not null, event_type text not null, data blob not null, names text not null,
    primary key (partition_id, transaction_id, id)
) strict;

-- The names that an event was told under, newest last.
create table trace_names (
    tenant_id integer not null, name text not null, created_at integer not null, trace_id text not null,
    partition_id integer not null, transaction_id text not null, primary key (tenant_id, name, created_at, trace_id)
) without rowid, strict;
-- Purging a partition and deleting a message: the names of its traces.
create index trace_names_message on trace_names (partition_id, transaction_id);

-- Where the messages are that carry a traceId; others have no row.
create table traced (
    trace_id text not null, partition_id integer not null, position integer not null,
    primary key (trace_id, partition_id, position)
) without rowid, strict;
create index traced_position on traced (partition_id, position);  -- Forgets the messages of a partition that are gone.

-- Streams that were registered.
create table stream_queries (
    id blob primary key,
    tenant_id integer not null, name text not null, source_queue text not null, sink_queue text,
    config_hash text not null, updated_at integer not null,
    unique (tenant_id, name)  -- A stream by its name.
) strict;

-- What a stream keeps of a partition, by key.
create table stream_state (
    partition_id integer not null, query_id blob not null, key text not null,
    window_end real, updated_at integer not null, value blob not null, primary key (partition_id, query_id, key)
) strict;
create index stream_state_query on stream_state (query_id);  -- Dropping all state of a query.

-- Sources: how far the records of somebody's API were read, and who reads them.
create table sources (
    id integer primary key autoincrement,
    tenant text not null, name text not null, revision text not null default '', cursor text,
    token integer not null default 1, leased_until integer, created_at integer not null, sweep integer not null default 0,
    sweeping integer not null default 0, sweep_cursor text, swept_at integer, committed_at integer,
    records integer not null default 0,
    unique (tenant, name)  -- A source by its name.
) strict;

-- What is known of each record: the hash of its content, and the last sweep that saw it.
create table shadow_records (
    source_id integer not null, key text not null,
    hash text not null, sweep integer not null, primary key (source_id, key)
) without rowid, strict;
create index shadow_records_sweep on shadow_records (source_id, sweep);  -- unseen: records that a sweep did not see.

-- The content of each record as its last event told it, and the partition of its events. Beside what sweeps mark.
create table shadow_copies (
    source_id integer not null, key text not null, partition text not null, data blob not null, primary key (source_id, key)
) strict;

-- Specs that were applied, every version of each.
create table specs (
    tenant text not null, version integer not null,
    app text not null, hash text not null, applied_by text not null, applied_at integer not null,
    source text not null, document text not null, primary key (tenant, version)
) strict;
create index specs_app on specs (tenant, app, version);  -- in_force and versions: the latest of an app.

-- Queues declared by the specs in force. A queue is always created with these options.
create table declared_queues (
    tenant text not null, name text not null, app text not null, options text not null,
    mapped integer not null,  -- Whether its messages become commands.
    primary key (tenant, name)
) without rowid, strict;

-- What handlers did once for a message, so that another attempt need not do it again.
create table effects (
    tenant text not null, partition_id integer not null, key text not null,
    value blob not null, kept_until integer not null, primary key (tenant, partition_id, key)
) without rowid, strict;
create index effects_kept_until on effects (kept_until);  -- keep: those whose time is over.

-- Workers that told of themselves, each with what it said last.
create table workers (
    tenant text not null, id text not null,
    facts text not null, seen_at integer not null, primary key (tenant, id)
) without rowid, strict;

-- Keys of encrypted queues, each sealed by a key that the operator holds.
create table data_keys (
    id blob primary key,
    queue_id integer not null, kek text not null, wrapped blob not null, created_at integer not null
) without rowid, strict;
create index data_keys_queue on data_keys (queue_id);  -- All keys of a queue: for a replay, and to delete them with it.

-- Keys of callers. A secret is nowhere: it is known by its SHA-256.
create table api_keys (
    id text primary key, tenant text not null, name text not null, role text, scopes text not null,
    hash blob not null, old_hash blob, old_until integer,
    created_at integer not null, created_by text not null, expires_at integer, used_at integer, revoked_at integer
) without rowid, strict;
create unique index api_keys_name on api_keys (tenant, name) where revoked_at is null;  -- A name is free again when its key is revoked.

-- Browsers that logged in. `hash` is of the id in their cookie, `key_hash` of the key they logged in with.
create table sessions (
    hash blob primary key, tenant text not null, owner text not null, key_hash blob, caller text,
    created_at integer not null, expires_at integer not null
) without rowid, strict;
create index sessions_owner on sessions (tenant, owner, created_at);  -- The oldest of an owner, which ends when there are too many.

-- Who did what. Nothing is changed, and only the oldest are deleted. `hash` is over the entry and the hash of the one before it, which is `previous`.
create table audit_entries (
    number integer primary key, at integer not null, tenant text not null, caller text not null, action text not null,
    target text not null, outcome text not null, source text not null, began integer, hash blob not null, previous blob not null
) strict;
create unique index audit_entries_began on audit_entries (began) where began is not null;  -- The end of an action, and the entry that it began with.
-- The last of them, the only row: entries that were taken from the end are missed.
create table audit_head (one integer primary key check (one), number integer not null, hash blob not null) strict;
insert into audit_head (one, number, hash) values (1, 0, x'');

-- Flags: what operators turned on or off for all brokers.
create table flags (name text primary key, enabled integer not null, changed_at integer not null) without rowid, strict;

-- Work that one task at a time does for all. A token names one time of leading, and is never used again.
create table leadership (
    name text primary key,
    token integer not null, leads_until integer not null, rests_until integer not null
) without rowid, strict;

-- Cursors of the groups that count for the depth of a limited queue.
create view counting as
select c.partition_id, c.group_id, c.committed, c.claimed
from cursors c join groups g on g.id = c.group_id
where g.counts;
