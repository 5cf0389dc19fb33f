-- name: purge_segments (in purge)
delete from segments where rowid in (select rowid from segments where partition_id = ? limit ?)

-- name: purge_message_keys (in purge)
delete from message_keys
where (partition_id, key) in (select partition_id, key from message_keys where partition_id = ? limit ?)

-- name: purge_deleted_ids (in purge)
delete from deleted_ids where rowid in (select rowid from deleted_ids where partition_id = ? limit ?)

-- name: purge_cursors (in purge)
delete from cursors
where (partition_id, group_id) in (select partition_id, group_id from cursors where partition_id = ? limit ?)

-- name: purge_claims (in purge)
delete from claims
where (partition_id, group_id, first_pos) in
    (select partition_id, group_id, first_pos from claims where partition_id = ? limit ?)

-- name: purge_failures (in purge)
delete from failures where rowid in (select rowid from failures where partition_id = ? limit ?)

-- name: purge_dead_letters (in purge)
delete from dead_letters where rowid in (select rowid from dead_letters where partition_id = ? limit ?)

-- name: purge_results (in purge)
delete from results where rowid in (select rowid from results where partition_id = ? limit ?)

-- name: purge_scheduled_messages (in purge)
delete from scheduled_messages
where id in (select m.id from scheduled_segments b join scheduled_messages m on m.id = b.id where b.partition_id = ? limit ?)

-- name: purge_scheduled_keys (in purge)
delete from scheduled_keys
where (partition_id, key) in (select partition_id, key from scheduled_keys where partition_id = ? limit ?)

-- name: purge_scheduled_segments (in purge)
delete from scheduled_segments where id in (select id from scheduled_segments where partition_id = ? limit ?)

-- name: purge_skips (in purge)
delete from skips
where (partition_id, position, group_id) in
    (select partition_id, position, group_id from skips where partition_id = ? limit ?)

-- name: purge_traced (in purge)
delete from traced where (trace_id, partition_id, position) in
    (select trace_id, partition_id, position from traced where partition_id = ? limit ?)

-- name: purge_traces (in purge)
delete from traces where rowid in (select rowid from traces where partition_id = ? limit ?)

-- name: purge_trace_names (in purge)
delete from trace_names
where (tenant_id, name, created_at, trace_id) in
    (select tenant_id, name, created_at, trace_id from trace_names where partition_id = ? limit ?)

-- name: purge_stream_state (in purge)
delete from stream_state where rowid in (select rowid from stream_state where partition_id = ? limit ?)

-- name: purge_trims (in purge)
delete from trims where partition_id in (select partition_id from trims where partition_id = ? limit ?)

-- name: purge_expiries (in purge)
delete from expiries where partition_id = ? and ? > 0

-- name: purge_partitions (in purge)
delete from partitions where id = ?

-- name: partition_id (in ensure_partitions)
select id from partitions where queue_id = ? and name = ?

-- name: insert_partition (in ensure_partitions)
insert into partitions (queue_id, name, created_at) values (?, ?, ?) returning id

-- name: partitions_to_purge (in purge)
select id from partitions where queue_id = ? limit 1

-- name: groups (in ensure_partitions)
select id from groups where queue_id = ?
