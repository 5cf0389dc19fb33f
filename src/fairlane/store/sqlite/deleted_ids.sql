-- name: is_known (in is_known)
-- The message was not deleted by hand, nor the partition cleared.
select not exists (select 1 from skips where partition_id = ?1 and position = ?2 and group_id = 0)
    and not exists (select 1 from trims where partition_id = ?1 and cleared > ?2)

-- name: between (in deleted_matches)
select first_pos, keys, message_ids, transaction_ids
from deleted_ids
where partition_id = ? and created_at >= ? and created_at <= ?

-- name: window (in trim_log)
select q.options ->> '$.dedup_seconds' from partitions p join queues q on q.id = p.queue_id where p.id = ?

-- name: segments_to_trim (in trim_log)
select rowid, first_pos, created_at, keys, ends, body
from segments
where partition_id = ?1 and first_pos < ?2 and first_pos + n <= ?2
order by first_pos
limit ?3

-- name: delete_segment (in trim_log)
delete from segments where rowid = ?

-- name: remember (in trim_log)
insert into deleted_ids (partition_id, created_at, first_pos, forget_at, keys, message_ids, transaction_ids)
values (?, ?, ?, ?, ?, ?, ?)

-- name: cleared (in trim_log)
select rowid, partition_id, first_pos, keys from deleted_ids where partition_id = ? and first_pos < ? limit ?

-- name: overdue (in forget_ids)
select rowid, partition_id, first_pos, keys from deleted_ids where forget_at <= ? order by forget_at limit ?

-- name: to_trim (in trim_log)
insert or ignore into trims (partition_id) values (?)

-- name: forget (in forget_deleted_ids)
delete from deleted_ids where rowid = ?

-- name: keyed (in forget_deleted_ids)
select exists (select 1 from message_keys where partition_id = ?)

-- name: forget_key (in forget_deleted_ids)
delete from message_keys where partition_id = ? and key = ? and position >= ? and position < ?

-- name: first_known (in trim_records)
-- The first position with a message or an id.
select min(p.start,
    ifnull((select min(s.first_pos) from segments s where s.partition_id = p.id), p.start),
    ifnull((select d.first_pos from deleted_ids d where d.partition_id = p.id
        order by d.created_at, d.first_pos limit 1), p.start))
from partitions p
where p.id = ?

-- name: trim_results (in trim_records)
delete from results where rowid in (select rowid from results where partition_id = ?1 and position < ?2 limit ?3)

-- name: trim_cancellations (in trim_records)
delete from cancellations where (partition_id, group_id, position) in
    (select partition_id, group_id, position from cancellations where partition_id = ?1 and position < ?2 limit ?3)

-- name: trim_skips (in trim_records)
delete from skips where (partition_id, position, group_id) in
    (select partition_id, position, group_id from skips where partition_id = ?1 and position < ?2 limit ?3)
