-- Pushes of the partition that were accepted and are not applied yet: while there are any, other pushes must wait too.
alter table partitions add open_operations integer not null default 0;
-- Operations are numbered in their partition, so that their order is no clock's.
alter table partitions add next_operation integer not null default 0;

create table operations (
    partition_id integer not null,
    group_id integer not null,
    sequence integer not null,
    id blob not null unique,
    type text not null,
    priority integer not null,
    tenant text not null,
    queue text not null,
    partition_name text not null,
    "group" text not null,
    queue_id integer not null,
    payload blob not null,
    size integer not null,
    messages integer not null,
    status text not null default 'pending',
    created_at integer not null,
    started_at integer,
    processed_at integer,
    worker text,
    timeout_seconds integer not null default 30,
    retries integer not null default 0,
    error text,
    failed_at integer,
    result blob,
    primary key (partition_id, group_id, sequence)
) strict;

-- Lanes that have open operations. `ready_at`: past, may be claimed; future, held by a worker or waiting for a retry.
create table operation_lanes (
    partition_id integer not null,
    group_id integer not null,
    queue_id integer not null,
    tenant text not null,
    queue text not null,
    partition_name text not null,
    "group" text not null,
    priority integer not null,
    open integer not null,
    messages integer not null,
    next_sequence integer not null,
    ready_at integer not null,
    moved_at integer not null,
    claim blob,
    primary key (partition_id, group_id)
) without rowid, strict;

-- For a claim: lanes that are ready, best priority first, longest-ready first.
create index operation_lanes_ready on operation_lanes (priority, ready_at);
-- For counting the depth of a queue anew.
create index operation_lanes_queue on operation_lanes (queue_id);

-- Which queues changed, for what brokers remember of them.
create table catalogue_changes (
    version integer primary key autoincrement,
    queue_id integer not null
) strict;
