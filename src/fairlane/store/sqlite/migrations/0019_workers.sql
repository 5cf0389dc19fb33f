-- Workers that told of themselves, each with what it said last.
create table workers (
    tenant text not null,
    id text not null,
    facts text not null,
    seen_at integer not null,
    primary key (tenant, id)
) without rowid, strict;
