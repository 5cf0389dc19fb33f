-- Keys of encrypted queues, each sealed by a key that the operator holds.
create table data_keys (
    id blob primary key,
    queue_id integer not null,
    kek text not null,
    wrapped blob not null,
    created_at integer not null
) without rowid, strict;

-- For all keys of a queue: for a replay, and to delete them with it.
create index data_keys_queue on data_keys (queue_id);
