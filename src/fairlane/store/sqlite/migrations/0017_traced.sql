-- Where the messages are that carry a traceId; others have no row.
create table traced (
    trace_id text not null,
    partition_id integer not null,
    position integer not null,
    primary key (trace_id, partition_id, position)
) without rowid, strict;

-- For forgetting the messages of a partition that are gone.
create index traced_place on traced (partition_id, position);
