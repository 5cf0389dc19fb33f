-- The tables of a new file, here and in `schema_*.sql`: the same as on PostgreSQL, without epochs, which a single writer does
-- not need. A table begins with the columns of its key.
--
-- Times are microseconds since 1970. Ids come from AUTOINCREMENT, so that an id kept by a client never names something made later.

-- Applied versions of the schema. `hash` is the hash of these files if it created the tables.
create table migrations (
    version integer primary key, name text not null, hash text, applied_at text not null,
    needs integer not null  -- The oldest schema whose brokers can use the database.
) strict;

-- Numbers that outlive the process, such as the last stored time.
create table meta (key text primary key, value integer not null) without rowid, strict;

-- Tenants, the owners of queues.
create table tenants (
    id integer primary key autoincrement, name text not null unique, quotas text not null default '{}',
    created_at integer  -- Null: created with the database.
) strict;
insert into tenants (name) values ('default');

-- Queues, each with its options.
create table queues (
    id integer primary key autoincrement,
    tenant_id integer not null, name text not null, namespace text not null, task text not null, options text not null,
    depth integer not null default 0,  -- Messages that some group has not finished. Kept only while options.max_size > 0.
    created_at integer not null,
    paused_at integer,  -- Set while it is paused.
    unique (tenant_id, name)  -- A queue by its name, and all queues of a tenant.
) strict;

-- Consumer groups. Each reads all messages of its queue.
create table groups (
    id integer primary key autoincrement,
    queue_id integer not null, name text not null, mode text not null, from_at integer,
    conflation integer not null default 0,  -- True to deliver only the newest message of each partition.
    look integer not null default 0,  -- Created to inspect messages, and not used by a consumer since.
    counts integer not null default 1,  -- True if its unfinished messages count towards the depth.
    created_at integer not null,
    paused_at integer,  -- Set while it is paused.
    seed_after integer,  -- The id behind which partitions may lack a cursor of this group; null when none does.
    unique (queue_id, name)  -- A group by its name, and all groups of a queue.
) strict;

-- Deleted queues whose rows are still being removed.
create table purges (queue_id integer primary key) strict;

-- Changed queues, for the caches of brokers.
create table catalogue_changes (version integer primary key autoincrement, queue_id integer not null) strict;

-- The log: partitions, and the messages in them.

-- Ordered streams of a queue.
create table partitions (
    id integer primary key autoincrement,
    queue_id integer not null, name text not null,
    head integer not null default 0, start integer not null default 0,  -- The next position, and the first retained one.
    -- The latest time inside any UUIDv7 transactionId stored here: a later id cannot be a duplicate.
    newest_id_at integer not null default 0,
    -- The latest time of an id that was ahead of the clock, and is therefore in message_keys.
    keyed_until integer not null default 0,
    -- Ids up to this time may have been pushed before, so that a late call may be a repeat.
    doubted_until integer not null default 0,
    -- Accepted pushes that are not applied yet. While there are any, later pushes must wait, too. Operations are numbered in
    -- their partition, so that their order does not depend on a clock.
    open_operations integer not null default 0, next_operation integer not null default 0,
    -- A lane that becomes ready counts as if it had waited this much longer, in microseconds: its priority.
    priority_lead integer not null default 0,
    created_at integer not null, last_at integer not null default 0,
    paused_at integer,  -- Set while it is paused.
    unique (queue_id, name)  -- A partition by its name.
) strict;
create index partitions_queue on partitions (queue_id);  -- Seeding a group and purging a queue: partitions by id, in bounded steps.
create index partitions_paused on partitions (queue_id) where paused_at is not null;  -- pauses: paused partitions.

-- Segments of consecutive messages. A rowid table, so that new rows of all partitions go to the same last pages.
create table segments (
    partition_id integer not null, first_pos integer not null,
    n integer not null, created_at integer not null, checksum integer not null, ends text not null,
    keys blob not null, body blob not null, primary key (partition_id, first_pos)
) strict;

-- Ids that are not UUIDv7, or were old when they were pushed, so that the time of their segment does not lead to them.
create table message_keys (
    partition_id integer not null, key integer not null,
    transaction_id text not null, message_id text not null, position integer not null, created_at integer not null,
    primary key (partition_id, key)
) without rowid, strict;

-- Ids of messages that were deleted before the window of their queue had passed, one row per segment. Ids have 16 bytes each.
create table deleted_ids (
    partition_id integer not null, created_at integer not null, first_pos integer not null,
    forget_at integer not null, keys blob not null, message_ids blob not null,
    transaction_ids blob,  -- Null: the same as the messages', as where the broker made them. Zeros where message_keys has the id.
    primary key (partition_id, created_at, first_pos)
) strict;
create index deleted_ids_forget on deleted_ids (forget_at);  -- retention: ids whose window has passed.

-- Messages that pops skip: deleted ones with group 0, and those that a group finished or dead-lettered ahead of its cursor. Such
-- a cursor is marked as failing, as with a row of `failures`.
create table skips (
    partition_id integer not null, position integer not null, group_id integer not null,
    created_at integer not null, primary key (partition_id, position, group_id)
) without rowid, strict;

-- Partitions whose log below `start` is still to be removed.
create table trims (
    partition_id integer primary key,
    cleared integer not null default 0  -- The ids of messages below this position are forgotten.
) strict;

-- Lanes: a partition as one group sees it.

-- The position of a group in a partition, with the lease of the lane.
create table cursors (
    partition_id integer not null, group_id integer not null,
    committed integer not null,  -- Everything below is finished.
    claimed integer not null default 0,  -- Unordered queues: positions below were delivered.
    ready_at integer,  -- Null: nothing to read. Past: may be claimed. Future: leased, or sleeping after a failure.
    lease blob, lease_start integer, lease_end integer,
    leased_at integer,  -- Time of the last delivery.
    last_lease blob,  -- The last lease that its holder finished, to tell a repeated ack from a stale one.
    -- After a lost lease, messages below this position are delivered one at a time, to isolate a poison message.
    probe_until integer not null default 0,
    failing integer not null default 0,  -- True if `failures` or `skips` has rows of this lane.
    -- The lane was set aside until it is resumed, by an operator or with a message without attempts left.
    parked integer not null default 0,
    dead integer not null default 0,
    -- Expired messages that were dropped. Dead-lettered ones count as dead.
    expired integer not null default 0, primary key (partition_id, group_id)
) without rowid, strict;
-- pop: the ready lanes of a group, longest-ready first. renew, release: the live leases of a group.
create index cursors_ready on cursors (group_id, ready_at) where ready_at is not null;

-- Unordered queues: ranges of unfinished positions that consumers hold. A whole batch is one row.
create table claims (
    partition_id integer not null, group_id integer not null, first_pos integer not null,
    upto integer not null, token blob not null, ends_at integer not null, primary key (partition_id, group_id, first_pos)
) without rowid, strict;
create index claims_ends on claims (group_id, ends_at);  -- pop: claims that ran out. renew, release: the live ones of a group.

-- Messages with failed attempts at or after the cursor. The fast path has none.
create table failures (
    partition_id integer not null, group_id integer not null, position integer not null,
    attempts integer not null, retry_limit integer, first_failed_at integer not null, failed_at integer not null,  -- null: the queue's.
    -- A message of an unordered queue to deliver again has `due_at`. With `token` it is leased until then. `alone`: it was in a
    -- lost batch, and is delivered alone, to isolate a poison message.
    due_at integer, token blob, alone integer not null default 0,
    error text not null,
    traceback text,
    -- Earlier failures, oldest first, as [{"at": microseconds, "error": text, "traceback": text or null}]. The last one has its own columns.
    history text not null default '[]', primary key (partition_id, group_id, position)
) strict;
-- pop: finds lanes with due messages without checking each lane.
create index failures_due on failures (group_id, due_at, partition_id) where due_at is not null;
-- ack_unordered: finds redelivered messages that a consumer holds, however many others wait.
create index failures_out on failures (partition_id, group_id, token) where token is not null;

-- Dead letters, with the complete message.
create table dead_letters (
    partition_id integer not null, group_id integer not null, position integer not null,
    queue_id integer not null, message_created_at integer not null, attempts integer not null,
    first_failed_at integer not null, failed_at integer not null, replayed_at integer, replayed_as text,
    -- When to forward the letter to the queue that its queue names. Null if it was forwarded, or none is named.
    forward_at integer,
    error text not null,
    traceback text,
    history text not null default '[]',  -- Same format as in `failures`.
    message blob not null, primary key (partition_id, group_id, position)
) strict;
-- Lists, replays and purges the dead letters of a queue by time.
create index dead_letters_failed on dead_letters (queue_id, failed_at);
create index dead_letters_forward on dead_letters (forward_at) where forward_at is not null;  -- forward: letters that wait for it.

-- Results of acks.
create table results (
    partition_id integer not null, group_id integer not null, position integer not null,
    created_at integer not null, result blob not null, primary key (partition_id, group_id, position)
) strict;

-- Deliveries of groups whose queue has a rate, for as long as the rate counts them.
create table starts (
    group_id integer not null,
    key text not null,  -- Empty for the rate of the group.
    at integer not null, n integer not null, primary key (group_id, key, at)
) strict, without rowid;
create index starts_at on starts (group_id, at);  -- pop: deliveries that no rate counts any more.

-- Cancelled messages, by group. Group 0 stands for groups that are created later.
create table cancellations (
    partition_id integer not null, group_id integer not null, position integer not null,
    token blob,  -- The lease that held the message.
    cancelled_at integer not null, primary key (partition_id, group_id, position)
) strict, without rowid;
-- renew, of_leases: the cancelled messages of a lease.
create index cancellations_lease on cancellations (group_id, token) where token is not null;

-- The latest progress of messages, as their handlers reported it. It counts while the lease that reported it holds the message.
create table progress (
    partition_id integer not null, group_id integer not null, position integer not null,
    token blob not null, report blob not null, reported_at integer not null,
    primary key (partition_id, group_id, position)
) strict, without rowid;
create index progress_reported on progress (reported_at);  -- forget: old reports.

-- Ids of scheduled messages that were cancelled, for a while.
create table cancelled_ids (
    partition_id integer not null, transaction_id text not null, kept_until integer not null,
    primary key (partition_id, transaction_id)
) strict, without rowid;
create index cancelled_ids_kept on cancelled_ids (kept_until);  -- forget: those to delete.

-- The latest unique message of each key. Its lane says whether it waits, runs or is finished.
create table unique_keys (
    queue_id integer not null, key text not null,  -- Hash of the key, or of type and payload.
    partition_id integer not null,
    position integer,  -- NULL while it is scheduled.
    transaction_id text not null, message_id text not null,
    due_at integer,  -- Time of a scheduled message.
    primary key (queue_id, key)
) strict, without rowid;
create index unique_keys_place on unique_keys (partition_id, position);  -- forget: messages that every group finished.

-- Scheduled messages: those of one call and partition form a segment, in the order of their times. They get their positions when
-- they are due. One row per message would cost ten times as much.
create table scheduled_segments (
    id integer primary key,
    partition_id integer not null, queue_id integer not null, partition_name text not null, created_at integer not null,
    next_at integer not null,  -- Time when its first message is due, or is retried while its queue is full.
    last_at integer not null,  -- Time when its last message is due.
    n integer not null,
    taken integer not null,  -- Number of messages that were appended, from the first on.
    keyed integer not null  -- True if some of its ids are in `scheduled_keys`.
) strict;
create index scheduled_segments_due on scheduled_segments (next_at, id);  -- due: due messages, oldest first.
-- segments_of_time: a message by its id, which contains the time of scheduling; purging a partition.
create index scheduled_segments_partition on scheduled_segments (partition_id, created_at);

-- The messages of a segment, separate from the row that changes when some of them are due.
create table scheduled_messages (
    id integer primary key,
    due text not null, ends text not null, keys text not null, body blob not null
) strict;

-- Ids that do not contain the time of scheduling.
create table scheduled_keys (
    partition_id integer not null, key integer not null,
    segment_id integer not null, primary key (partition_id, key)
) without rowid, strict;

-- Schedules, with the message to push at every tick.
create table schedules (
    tenant text not null, name text not null,
    options text not null, revision text not null,
    next_at integer,  -- Null while it is paused.
    paused_at integer,
    last_at integer,  -- The last tick that was pushed, and the queue that it was pushed to.
    last_queue text, last_partition text, primary key (tenant, name)
) without rowid, strict;
create index schedules_next on schedules (next_at) where next_at is not null;  -- due and next_in: the first to tick.

-- Operations: accepted pushes and acks that are not applied yet.
create table operations (
    partition_id integer not null, group_id integer not null, sequence integer not null,  -- group 0 for pushes
    id blob not null unique,
    type text not null, priority integer not null, tenant text not null, queue text not null, partition_name text not null,
    "group" text not null, queue_id integer not null, payload blob not null, size integer not null, messages integer not null,
    status text not null default 'pending', created_at integer not null, started_at integer, processed_at integer,
    failed_at integer, worker text, retries integer not null default 0,
    error text, result blob, primary key (partition_id, group_id, sequence)
) strict;
-- Failed operations: lists, counts and removes them without reading others.
create index operations_failed on operations (id) where failed_at is not null;

-- Lanes with open operations. `ready_at` in the past: may be claimed. In the future: held by a worker, or waiting for a retry.
create table operation_backlogs (
    partition_id integer not null, group_id integer not null,
    queue_id integer not null, tenant text not null, queue text not null, partition_name text not null,
    "group" text not null, priority integer not null, open integer not null,
    messages integer not null,  -- Messages of the open operations, which reserve capacity of the queue.
    next_sequence integer not null,  -- Operations below are not open.
    ready_at integer not null,
    moved_at integer not null,  -- Time when the row was created, or an operation last ended.
    claim blob, primary key (partition_id, group_id)
) without rowid, strict;
-- claim: ready lanes, by priority, then longest-ready first.
create index operation_backlogs_ready on operation_backlogs (priority, ready_at);
create index operation_backlogs_queue on operation_backlogs (queue_id);  -- Recounts of a queue's depth.

-- The next check of a partition by retention. Every partition with messages of a queue with rules has a row.
create table expiries (partition_id integer primary key, due_at integer not null) strict;
create index expiries_due on expiries (due_at);  -- retention: due partitions, longest due first.

-- The rules behind the rows of `expiries`. After a change of rules, partitions get new rows in bounded steps: from this id on.
-- Null when all have one.
create table retention_rules (queue_id integer primary key, rules text not null, seed_after integer) strict;

-- Deletions by queue, minute and rule.
create table retention_minutes (
    queue_id integer not null, at integer not null, rule text not null,
    messages integer not null, unread integer not null, primary key (queue_id, at, rule)
) without rowid, strict;
create index retention_minutes_at on retention_minutes (at);  -- retention: old history to delete.

-- Deletions by partition and hour. By name, because the partition may be deleted.
create table retention_hours (
    queue_id integer not null, partition_name text not null, at integer not null, rule text not null,
    messages integer not null, unread integer not null, primary key (queue_id, partition_name, at, rule)
) without rowid, strict;
create index retention_hours_at on retention_hours (at);  -- retention: old history to delete.
