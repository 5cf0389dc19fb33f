-- Tables of the API of Queen's clients: notes of consumers about messages, and streams.

-- Notes of consumers about a message.
create table traces (
    partition_id integer not null, transaction_id text not null, id text not null,
    created_at integer not null, group_name text not null, event_type text not null, data blob not null, names text not null,
    primary key (partition_id, transaction_id, id)
) strict;

-- The names of a note, newest last.
create table trace_names (
    tenant_id integer not null, name text not null, created_at integer not null, trace_id text not null,
    partition_id integer not null, transaction_id text not null, primary key (tenant_id, name, created_at, trace_id)
) without rowid, strict;
-- Purging a partition and deleting a message: the names of its traces.
create index trace_names_message on trace_names (partition_id, transaction_id);

-- Positions of messages with a traceId.
create table traced (
    trace_id text not null, partition_id integer not null, position integer not null,
    primary key (trace_id, partition_id, position)
) without rowid, strict;
create index traced_position on traced (partition_id, position);  -- trim: rows of deleted messages of a partition.

-- Registered streams.
create table stream_queries (
    id blob primary key,
    tenant_id integer not null, name text not null, source_queue text not null, sink_queue text,
    config_hash text not null, updated_at integer not null,
    unique (tenant_id, name)  -- A stream by its name.
) strict;

-- State of a stream in a partition, by key.
create table stream_state (
    partition_id integer not null, query_id blob not null, key text not null,
    window_end real, updated_at integer not null, value blob not null, primary key (partition_id, query_id, key)
) strict;
create index stream_state_query on stream_state (query_id);  -- Deletes all state of a query.
