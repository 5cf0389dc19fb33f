-- Schedules: what is pushed at every tick. Messages that wait for a time of their own are in `scheduled`.
create table recurring (
    tenant text not null,
    name text not null,
    definition text not null,
    revision text not null,
    -- Null while it is paused.
    next_at integer,
    paused_at integer,
    primary key (tenant, name)
) without rowid, strict;

-- due and next_in: the first to tick.
create index recurring_next on recurring (next_at) where next_at is not null;
