-- Unordered queues. Positions below `claimed` were handed out; `committed` is still what everything below is finished.
alter table cursors add column claimed integer not null default 0;

-- What is in consumers' hands: ranges of positions that are not finished yet. A whole batch is one row.
create table claims (
    partition_id integer not null,
    group_id integer not null,
    first_pos integer not null,
    upto integer not null,
    token blob not null,
    ends_at integer not null,
    primary key (partition_id, group_id, first_pos)
) without rowid, strict;

-- For a pop: claims that ran out; and for renewing the others.
create index claims_ends on claims (group_id, ends_at);

-- A message of an unordered queue that comes again has `due_at`. With `token` it is out again until then. `alone`: it was
-- in a batch that was lost, and is handed out by itself, so that the poison is found.
alter table failures add column due_at integer;
alter table failures add column token blob;
alter table failures add column alone integer not null default 0;

-- For a pop: messages that are due.
create index failures_due on failures (group_id, due_at) where due_at is not null;
