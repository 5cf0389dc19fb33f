-- The tables after `schema.sql`: sources, specs, workers, keys, sessions, the audit log, flags and leadership.

-- Sources: the progress of reading an API, and its poller.
create table sources (
    id integer primary key autoincrement,
    tenant text not null, name text not null, revision text not null default '', cursor text,
    token integer not null default 1, leased_until integer, created_at integer not null, sweep integer not null default 0,
    sweeping integer not null default 0, sweep_cursor text, swept_at integer, committed_at integer,
    records integer not null default 0,
    unique (tenant, name)  -- A source by its name.
) strict;

-- Known records: the hash of their content, and the last sweep that saw them.
create table shadow_records (
    source_id integer not null, key text not null,
    hash text not null, sweep integer not null, primary key (source_id, key)
) without rowid, strict;
create index shadow_records_sweep on shadow_records (source_id, sweep);  -- unseen: records that a sweep did not see.

-- The content of each record in its last event, and the partition of its events. Separate from the rows that sweeps update.
create table shadow_copies (
    source_id integer not null, key text not null, partition text not null, data blob not null, primary key (source_id, key)
) strict;

-- Applied specs, with all versions.
create table specs (
    tenant text not null, version integer not null,
    app text not null, hash text not null, applied_by text not null, applied_at integer not null,
    source text not null, document text not null, primary key (tenant, version)
) strict;
create index specs_app on specs (tenant, app, version);  -- in_force and versions: the latest of an app.

-- Queues declared by the specs in force. A queue is always created with these options.
create table declared_queues (
    tenant text not null, name text not null, app text not null, options text not null,
    mapped integer not null,  -- True if its messages become commands.
    primary key (tenant, name)
) without rowid, strict;

-- Effects of handlers, so that another attempt does not repeat them.
create table effects (
    tenant text not null, partition_id integer not null, key text not null,
    value blob not null, kept_until integer not null, primary key (tenant, partition_id, key)
) without rowid, strict;
create index effects_kept_until on effects (kept_until);  -- keep: expired effects.

-- Fan-ins: groups of messages, their parts, after whose ends a callback is pushed.
create table fan_ins (
    tenant text not null, id text not null,
    total integer not null, group_name text not null,
    queue text not null, callback blob not null,  -- The message to push, as JSON, and its queue.
    created_at integer not null,
    ended_at integer,  -- When the callback was pushed.
    error text,  -- Why it could not be pushed.
    primary key (tenant, id)
) without rowid, strict;
create index fan_ins_open on fan_ins (created_at) where ended_at is null;  -- ready: fan-ins without their callback.
create index fan_ins_ended on fan_ins (ended_at) where ended_at is not null;  -- forget: fan-ins that ended long ago.

-- Parts of fan-ins, each a message as one group sees it.
create table fan_in_parts (
    tenant text not null, fan_in text not null, part integer not null,
    queue_id integer not null, partition_id integer not null, position integer not null, group_name text not null,
    queue text not null, partition text not null, transaction_id text not null,
    status text, ended_at integer,  -- NULL until the end was noted.
    error text, result blob,
    primary key (tenant, fan_in, part)
) without rowid, strict;
create index fan_in_parts_open on fan_in_parts (partition_id, position) where status is null;  -- settle: open parts of a lane.
create index fan_in_parts_left on fan_in_parts (tenant, fan_in) where status is null;  -- ready: fan-ins with open parts.

-- Workers with their latest report.
create table workers (
    tenant text not null, id text not null,
    facts text not null, seen_at integer not null, primary key (tenant, id)
) without rowid, strict;

-- Data keys of encrypted queues, each sealed by a key of the operator.
create table data_keys (
    id blob primary key,
    queue_id integer not null, kek text not null, wrapped blob not null, created_at integer not null
) without rowid, strict;
create index data_keys_queue on data_keys (queue_id);  -- All keys of a queue, to replay into it or delete it.

-- API keys. Only the SHA-256 of a secret is stored.
create table api_keys (
    id text primary key, tenant text not null, name text not null, role text, scopes text not null,
    hash blob not null, old_hash blob, old_until integer,
    created_at integer not null, created_by text not null, expires_at integer, used_at integer, revoked_at integer
) without rowid, strict;
create unique index api_keys_name on api_keys (tenant, name) where revoked_at is null;  -- The name of a revoked key can be used again.

-- Login sessions. `hash` is the hash of the id in the cookie, `key_hash` of the key used to log in.
create table sessions (
    hash blob primary key, tenant text not null, owner text not null, key_hash blob, caller text,
    created_at integer not null, expires_at integer not null
) without rowid, strict;
create index sessions_owner on sessions (tenant, owner, created_at);  -- The oldest sessions of an owner.

-- The audit log. Entries never change, and only the oldest are deleted. `hash` covers the entry and the hash of the previous one,
-- which is `previous`.
create table audit_entries (
    number integer primary key, at integer not null, tenant text not null, caller text not null, action text not null,
    target text not null, outcome text not null, source text not null, began integer, hash blob not null, previous blob not null
) strict;
create unique index audit_entries_began on audit_entries (began) where began is not null;  -- The entry that ended an action, by the entry that began it.
-- The last entry, the only row, so that entries removed from the end are noticed.
create table audit_head (one integer primary key check (one), number integer not null, hash blob not null) strict;
insert into audit_head (one, number, hash) values (1, 0, x'');

-- Flags that operators set for all brokers.
create table flags (name text primary key, enabled integer not null, changed_at integer not null) without rowid, strict;

-- Snoozed findings. A snooze with a severity ends early if the finding gets worse than this severity and count.
create table snoozes (
    tenant text not null, key text not null,
    until integer not null, caller text not null, severity text, count integer, primary key (tenant, key)
) without rowid, strict;

-- Leaders of services that run once. A token identifies one term of leadership, and is never reused.
create table leadership (
    name text primary key,
    token integer not null, leads_until integer not null, rests_until integer not null
) without rowid, strict;

-- Cursors of the groups that count for the depth of a limited queue.
create view counting as
select c.partition_id, c.group_id, c.committed, c.claimed
from cursors c join groups g on g.id = c.group_id
where g.counts;
