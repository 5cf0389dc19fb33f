-- Messages that pops step over: deleted ones have the group 0, those that a group gave up on ahead of its cursor
-- have that group. A cursor with one of its own ahead is marked as failing, as with a row of `failures`.
create table skips (
    partition_id integer not null,
    position integer not null,
    group_id integer not null,
    created_at integer not null,
    primary key (partition_id, position, group_id)
) without rowid, strict;

-- Partitions whose log below `start` still has to go.
create table trims (
    partition_id integer primary key
) strict;

create table traces (
    partition_id integer not null,
    transaction_id text not null,
    created_at integer not null,
    id text not null,
    group_name text not null,
    event_type text not null,
    data blob not null,
    names text not null,
    primary key (partition_id, transaction_id, id)
) strict;

create table trace_names (
    tenant_id integer not null,
    name text not null,
    created_at integer not null,
    trace_id text not null,
    partition_id integer not null,
    transaction_id text not null,
    primary key (tenant_id, name, created_at, trace_id)
) without rowid, strict;

-- For purging a partition and for deleting a message: the names of its traces.
create index trace_names_message on trace_names (partition_id, transaction_id);

create table stream_queries (
    id blob primary key,
    tenant_id integer not null,
    name text not null,
    source_queue text not null,
    sink_queue text,
    config_hash text not null,
    updated_at integer not null,
    unique (tenant_id, name)
) strict;

create table stream_state (
    partition_id integer not null,
    query_id blob not null,
    key text not null,
    window_end real,
    updated_at integer not null,
    value blob not null,
    primary key (partition_id, query_id, key)
) strict;

-- For dropping all state of a query.
create index stream_state_query on stream_state (query_id);

create table switches (
    name text primary key,
    enabled integer not null,
    changed_at integer not null
) without rowid, strict;

-- The log for people, without what was deleted.
drop view messages;
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
join queues q on q.id = p.queue_id
where not exists (
    select 1 from skips x where x.partition_id = m.partition_id and x.position = m.position and x.group_id = 0);
