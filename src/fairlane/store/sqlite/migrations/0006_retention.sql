-- Work that is done now and then. A token names one time of leading, and is never used again.
create table services (
    name text primary key,
    token integer not null,
    leads_until integer not null,
    rests_until integer not null
) without rowid, strict;

-- When retention looks at a partition next. Every partition of a retained queue that holds messages has a row.
create table expiries (
    partition_id integer primary key,
    due_at integer not null
) strict;

-- Retention: the partitions that are due, longest first.
create index expiries_due on expiries (due_at);

-- The rules that the rows of `expiries` were made by. Partitions of a queue whose rules changed get theirs in bounded
-- steps: from this id on; null when all have one.
create table retention_rules (
    queue_id integer primary key,
    rules text not null,
    seed_from integer
) strict;

-- What went, by queue, minute and rule.
create table retention_history (
    queue_id integer not null,
    at integer not null,
    rule text not null,
    messages integer not null,
    unread integer not null,
    primary key (queue_id, at, rule)
) without rowid, strict;

-- For forgetting history that is too old.
create index retention_history_at on retention_history (at);
