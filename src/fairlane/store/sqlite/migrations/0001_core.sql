-- Times are microseconds since 1970. Ids come from AUTOINCREMENT, so that an id kept by a
-- client never names something made later.

create table meta (
    key text primary key,
    value integer not null
) without rowid, strict;

create table tenants (
    id integer primary key autoincrement,
    name text not null unique
) strict;

create table queues (
    id integer primary key autoincrement,
    tenant_id integer not null,
    name text not null,
    namespace text not null,
    task text not null,
    options text not null,
    depth integer not null default 0,
    created_at integer not null,
    unique (tenant_id, name)
) strict;

create table groups (
    id integer primary key autoincrement,
    queue_id integer not null,
    name text not null,
    mode text not null,
    from_at integer,
    created_at integer not null,
    -- The partition id from which cursors may still be missing; 0 when none is.
    seeding integer not null,
    unique (queue_id, name)
) strict;

create table partitions (
    id integer primary key autoincrement,
    queue_id integer not null,
    name text not null,
    head integer not null default 0,
    start integer not null default 0,
    last_at integer not null default 0,
    created_at integer not null,
    newest_id_at integer not null default 0,
    keyed_until integer not null default 0,
    unique (queue_id, name)
) strict;

-- For seeding a group and for purging a queue: partitions by id, in bounded steps.
create index partitions_queue on partitions (queue_id);

-- A rowid table: new rows of all partitions go to the same last pages.
create table segments (
    partition_id integer not null,
    first_pos integer not null,
    n integer not null,
    created_at integer not null,
    checksum integer not null,
    ends text not null,
    keys blob not null,
    body blob not null,
    primary key (partition_id, first_pos)
) strict;

create table message_keys (
    partition_id integer not null,
    key integer not null,
    transaction_id text not null,
    message_id text not null,
    position integer not null,
    created_at integer not null,
    primary key (partition_id, key)
) without rowid, strict;

create table cursors (
    partition_id integer not null,
    group_id integer not null,
    committed integer not null,
    ready_at integer,
    lease blob,
    lease_start integer,
    lease_end integer,
    leased_at integer,
    last_lease blob,
    probe_until integer not null default 0,
    failing integer not null default 0,
    dead integer not null default 0,
    primary key (partition_id, group_id)
) without rowid, strict;

-- For a pop: the lanes of a group that are ready, longest-ready first; and for renewing its leases.
create index cursors_ready on cursors (group_id, ready_at) where ready_at is not null;

create table failures (
    partition_id integer not null,
    group_id integer not null,
    position integer not null,
    attempts integer not null,
    error text not null,
    first_failed_at integer not null,
    failed_at integer not null,
    primary key (partition_id, group_id, position)
) strict;

create table dead_letters (
    partition_id integer not null,
    group_id integer not null,
    position integer not null,
    queue_id integer not null,
    message_created_at integer not null,
    attempts integer not null,
    first_failed_at integer not null,
    failed_at integer not null,
    replayed_at integer,
    replayed_as text,
    error text not null,
    message blob not null,
    primary key (partition_id, group_id, position)
) strict;

-- For listing, replaying and purging the dead letters of a queue by time.
create index dead_letters_failed on dead_letters (queue_id, failed_at);

create table results (
    partition_id integer not null,
    group_id integer not null,
    position integer not null,
    created_at integer not null,
    result blob not null,
    primary key (partition_id, group_id, position)
) strict;

-- Deleted queues whose rows still have to go.
create table purges (
    queue_id integer primary key
) strict;

-- The log for people: one row per stored message.
create view messages as
with bounds as (
    select
        s.partition_id, s.first_pos + e.key as position, s.created_at, s.body, e.value as upto,
        case e.key when 0 then 0 else json_extract(s.ends, '$[' || (e.key - 1) || ']') end as since
    from segments s, json_each(s.ends) e
),
texts as (
    select partition_id, position, created_at,
        cast(substr(body, since + 1, upto - since) as text) || '}' as message
    from bounds
)
select
    q.name as queue,
    p.name as partition,
    m.position,
    iif(json_valid(m.message), m.message ->> '$.id', null) as id,
    iif(json_valid(m.message), m.message ->> '$.transactionId', null) as transaction_id,
    iif(json_valid(m.message), m.message ->> '$.type', null) as type,
    strftime('%Y-%m-%dT%H:%M:%S', m.created_at / 1000000, 'unixepoch')
        || printf('.%06dZ', m.created_at % 1000000) as created_at,
    iif(json_valid(m.message), m.message -> '$.data', null) as data
from texts m
join partitions p on p.id = m.partition_id and m.position >= p.start
join queues q on q.id = p.queue_id;
