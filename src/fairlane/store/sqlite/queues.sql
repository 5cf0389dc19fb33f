-- name: purge_scheduled_messages (in purge)
delete from scheduled_messages
where id in (select m.id from scheduled_segments b join scheduled_messages m on m.id = b.id where b.partition_id = ? limit ?)

-- name: purge_rows (in purge)
-- For each table with the columns of its key, because tables without rowid have nothing else to name a row.
delete from <table> where (<key>) in (select <key> from <table> where partition_id = ? limit ?)

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
