-- Messages that wait for their time, as they were scheduled: those of one call and partition are a bundle, in the order in which
-- they are due. They get their positions when they are due; a row for each would cost ten times as much.
create table bundles (
    id integer primary key,
    partition_id integer not null,
    queue_id integer not null,
    partition_name text not null,
    created_at integer not null,
    -- When its first message is due, or is tried again while its queue is full.
    next_at integer not null,
    -- When its last message is due.
    last_at integer not null,
    n integer not null,
    -- How many of them, from the first, were appended already.
    taken integer not null,
    -- Whether ids of it are in `bundle_keys`.
    keyed integer not null
) strict;

-- For firing: what is due, oldest first.
create index bundles_due on bundles (next_at, id);
-- For finding a message by its id, which says when it was scheduled; for purging a partition.
create index bundles_lane on bundles (partition_id, created_at);

-- Apart from the row that changes when some of them are due.
create table bundle_messages (
    id integer primary key,
    due text not null,
    ends text not null,
    keys text not null,
    body blob not null
) strict;

-- Ids that do not say when they were scheduled.
create table bundle_keys (
    partition_id integer not null,
    key integer not null,
    bundle_id integer not null,
    primary key (partition_id, key)
) strict, without rowid;

insert into bundles (id, partition_id, queue_id, partition_name, created_at, next_at, last_at, n, taken, keyed)
select rowid, partition_id, queue_id, partition_name, 0, due_at, due_at, 1, 0, 1 from scheduled;
insert into bundle_messages (id, due, ends, keys, body)
select rowid, json_array(due_at), json_array(length(message)), json_array(key), message from scheduled;
insert into bundle_keys (partition_id, key, bundle_id) select partition_id, key, rowid from scheduled;
drop table scheduled;
