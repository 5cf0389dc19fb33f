-- Sources: how far the records of somebody's API were read, and who reads them.
create table sources (
    id integer primary key autoincrement,
    tenant text not null,
    name text not null,
    revision text not null default '',
    cursor text,
    token integer not null default 1,
    leased_until integer,
    created_at integer not null,
    sweep integer not null default 0,
    sweeping integer not null default 0,
    sweep_cursor text,
    swept_at integer,
    committed_at integer,
    records integer not null default 0,
    unique (tenant, name)
) strict;

-- What is known of each record: the hash of its content, and the last sweep that saw it.
create table shadow_records (
    source_id integer not null,
    key text not null,
    hash text not null,
    sweep integer not null,
    primary key (source_id, key)
) without rowid, strict;

-- unseen: records that a sweep did not see.
create index shadow_records_sweep on shadow_records (source_id, sweep);
