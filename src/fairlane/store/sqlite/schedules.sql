-- name: same_key
select message_id, transaction_id from scheduled where partition_id = ? and key = ?

-- name: insert
insert into scheduled (due_at, message_id, partition_id, queue_id, partition_name, key, id_ms, given, transaction_id, message)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: due
select due_at, message_id, partition_id, queue_id, partition_name, key, id_ms, given, transaction_id, message
from scheduled
where due_at <= ?
order by due_at, message_id
limit ?

-- name: options
select options from queues where id = ?

-- name: done
delete from scheduled where partition_id = ? and key = ?

-- name: postpone
update scheduled set due_at = ?3 where partition_id = ?1 and key = ?2

-- name: cancel
delete from scheduled where partition_id = ? and key in (?, ?) and transaction_id = ? returning key

-- name: reschedule
update scheduled set due_at = ?5 where partition_id = ?1 and key in (?2, ?3) and transaction_id = ?4 returning due_at

-- name: list
select partition_id, partition_name, transaction_id, message_id, due_at
from scheduled
where queue_id = ?1 and (due_at, message_id) > (?2, ?3)
order by due_at, message_id
limit ?4

-- name: next
select min(due_at) from scheduled
