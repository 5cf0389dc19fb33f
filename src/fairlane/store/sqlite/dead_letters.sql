-- Every statement but the last is one of the heads, then `matching`, then one of the orders.

-- name: letters (in list)
select d.partition_id, d.group_id, d.position, q.name, p.name, g.name, d.message, d.message_created_at, d.error,
    d.attempts, d.first_failed_at, d.failed_at, d.replayed_at, d.replayed_as, d.history

-- name: count
select count(*)

-- name: matching (in list)
from queues q
join dead_letters d on d.queue_id = q.id
join partitions p on p.id = d.partition_id
join groups g on g.id = d.group_id
where q.id = :queue_id
    and (:failed_from is null or d.failed_at >= :failed_from)
    and (:failed_until is null or d.failed_at < :failed_until)
    and (:group is null or g.name = :group)
    and (:partition_id is null or d.partition_id = :partition_id)
    and (:replayed is null or (d.replayed_at is not null) = :replayed)
    and (:error is null or instr(d.error, :error) > 0)
    and (:ids is null or '0-' || d.partition_id || '-' || d.group_id || '-' || d.position
        in (select value from json_each(:ids)))

-- name: newest_first (in list)
    and (:before_at is null
        or (d.failed_at, '0-' || d.partition_id || '-' || d.group_id || '-' || d.position) < (:before_at, :before_id))
order by d.failed_at desc, '0-' || d.partition_id || '-' || d.group_id || '-' || d.position desc
limit :limit

-- name: oldest_first (in oldest)
order by d.failed_at, d.partition_id, d.position, d.group_id
limit :limit

-- name: get (in dead_letters_where)
select d.partition_id, d.group_id, d.position, q.name, p.name, g.name, d.message, d.message_created_at, d.error,
    d.attempts, d.first_failed_at, d.failed_at, d.replayed_at, d.replayed_as, d.history
from dead_letters d
join queues q on q.id = d.queue_id
join partitions p on p.id = d.partition_id
join groups g on g.id = d.group_id
where d.queue_id = ? and d.partition_id = ? and d.group_id = ? and d.position = ?

-- name: replayed
update dead_letters set replayed_at = ?, replayed_as = ? where partition_id = ? and group_id = ? and position = ?

-- name: delete
delete from dead_letters where partition_id = ? and group_id = ? and position = ?

-- name: pending
-- Letters that wait to be appended to the queue that is named for them, longest first.
select t.name, iif(json_type(q.options, '$.dead_letter_queue') = 'text', q.options ->> '$.dead_letter_queue', null),
    d.partition_id, d.group_id, d.position, q.name, p.name, g.name, d.message, d.message_created_at, d.error,
    d.attempts, d.first_failed_at, d.failed_at, d.replayed_at, d.replayed_as, d.history
from dead_letters d
join queues q on q.id = d.queue_id
join tenants t on t.id = q.tenant_id
join partitions p on p.id = d.partition_id
join groups g on g.id = d.group_id
where d.forward_at <= ?
order by d.forward_at
limit ?

-- name: still_pending (in lock_pending)
select 1 from dead_letters where partition_id = ? and group_id = ? and position = ? and forward_at <= ?

-- name: postpone
update dead_letters set forward_at = ? where partition_id = ? and group_id = ? and position = ?

-- name: make_room
-- A dead letter has its place beyond the limit of the queue that it goes to.
update queues set depth = ? where id = ?

-- name: names
select t.name, q.name, p.name
from partitions p join queues q on q.id = p.queue_id join tenants t on t.id = q.tenant_id
where p.id = ?
