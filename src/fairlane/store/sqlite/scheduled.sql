-- name: last_segment (in add_scheduled)
select coalesce(max(id), 0) from scheduled_segments

-- name: insert_segment (in add_scheduled)
insert into scheduled_segments (id, partition_id, queue_id, partition_name, created_at, next_at, last_at, n, taken, keyed)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?)

-- name: insert_messages (in add_scheduled)
insert into scheduled_messages (id, due, ends, keys, body) values (?, ?, ?, ?, ?)

-- name: insert_key (in add_scheduled)
insert into scheduled_keys (partition_id, key, segment_id) values (?, ?, ?)

-- name: doubt
update partitions set doubted_until = max(doubted_until, ?) where id = ?

-- name: due
select id, partition_id, queue_id, partition_name, n, taken, keyed, next_at from scheduled_segments
where next_at <= ?
order by next_at, id
limit ?

-- name: messages (in due_scheduled)
select due, ends, keys from scheduled_messages where id = ?

-- name: body (in due_scheduled)
select substr(body, ?2, ?3) from scheduled_messages where id = ?1

-- name: options
select options from queues where id = ?

-- name: proceed
update scheduled_segments set taken = ?2, next_at = ?3 where id = ?1

-- name: change_segment (in take_out_scheduled)
update scheduled_segments set n = ?2, next_at = ?3, last_at = ?4 where id = ?1

-- name: change_messages (in take_out_scheduled)
update scheduled_messages set due = ?2, ends = ?3, keys = ?4, body = ?5 where id = ?1

-- name: delete_segment (in take_out_scheduled)
delete from scheduled_segments where id = ?

-- name: delete_messages (in take_out_scheduled)
delete from scheduled_messages where id = ?

-- name: delete_keys (in proceed_scheduled)
delete from scheduled_keys where partition_id = ?1 and segment_id = ?2 and key in (select value from json_each(?3))

-- name: keyed_segment (in find_scheduled)
select b.id, b.created_at, b.taken, b.n, b.keyed, b.partition_id, b.queue_id, b.partition_name
from scheduled_keys k join scheduled_segments b on b.id = k.segment_id
where k.partition_id = ?1 and k.key in (?2, ?3)

-- name: segments_of_time (in find_scheduled)
select id, created_at, taken, n, keyed, partition_id, queue_id, partition_name from scheduled_segments
where partition_id = ? and created_at between ? and ?
