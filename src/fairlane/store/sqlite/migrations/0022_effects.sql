-- What handlers did once for a message, so that another attempt need not do it again.
create table effects (
    tenant text not null,
    key text not null,
    value blob not null,
    kept_until integer not null,
    primary key (tenant, key)
) without rowid, strict;

-- keep: those whose time is over.
create index effects_kept_until on effects (kept_until);
