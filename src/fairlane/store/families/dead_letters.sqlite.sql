-- part: letter
0, d.partition_id, d.group_id, d.position, q.name, p.name, g.name, d.message, d.message_created_at, d.error, d.attempts,
    d.first_failed_at, d.failed_at, d.replayed_at, d.replayed_as, d.history

-- part: id
'0-' || d.partition_id || '-' || d.group_id || '-' || d.position

-- part: matching
from queues q
join dead_letters d on d.queue_id = q.id
join partitions p on p.id = d.partition_id
join groups g on g.id = d.group_id
where q.id = :queue_id
    and d.failed_at >= coalesce(:failed_from, 0) and d.failed_at < coalesce(:failed_until, 9223372036854775807)
    and (:group is null or g.name = :group)
    and (:partition_id is null or d.partition_id = :partition_id)
    and (:replayed is null or (d.replayed_at is not null) = :replayed)
    and (:error is null or instr(d.error, :error) > 0)
    and (:ids is null or {id} in (select value from json_each(:ids)))

-- part: joined
from dead_letters d
join queues q on q.id = d.queue_id
join tenants t on t.id = q.tenant_id
join partitions p on p.id = d.partition_id
join groups g on g.id = d.group_id

-- part: this
partition_id = :partition_ids and group_id = :group_ids and position = :positions

-- name: list
select {letter} {matching}
    and (:before_at is null or (d.failed_at, {id}) < (:before_at, :before_id))
order by d.failed_at desc, {id} desc
limit :limit

-- name: oldest
select {letter} {matching}
order by d.failed_at, d.partition_id, d.position, d.group_id
limit :limit

-- name: count
select count(*) {matching}

-- name: queues
select q.id
from tenants t
join queues q on q.tenant_id = t.id
where t.name = :tenant and exists (select 1 from dead_letters d where d.queue_id = q.id and d.failed_at >= coalesce(:since, 0))

-- name: errors
-- By group and error; of the latest only, so that it ends.
select x.name, x.error, count(*), count(x.replayed_at), min(x.first_failed_at), max(x.failed_at)
from (
    select g.name, d.error, d.replayed_at, d.first_failed_at, d.failed_at {matching}
    order by d.failed_at desc
    limit :counted
) x
group by x.name, x.error
order by count(*) desc, x.error
limit :limit

-- name: get
select {letter} {joined}
where d.queue_id = :queue_id and d.partition_id = :partition_id and d.group_id = :group_id and d.position = :position

-- name: pending
-- Letters that wait to be appended to the queue that is named for them, longest first.
select t.name, iif(json_type(q.options, '$.dead_letter_queue') = 'text', q.options ->> '$.dead_letter_queue', null), {letter}
{joined}
where d.forward_at <= :now
order by d.forward_at
limit :limit

-- name: still_dead
-- Each:
select 0, partition_id, group_id, position from dead_letters where {this} and replayed_at is null

-- name: still_pending
-- Each:
select 0, partition_id, group_id, position from dead_letters where {this} and forward_at <= :now

-- name: replayed
-- Each:
update dead_letters set replayed_at = :now, replayed_as = :replayed_as where {this}

-- name: postpone
-- Each:
update dead_letters set forward_at = :now + :seconds * 1000000 where {this}

-- name: delete
-- Each:
delete from dead_letters where {this} and failed_at = :failed_at returning position

-- name: options
select options from queues where id = :queue_id

-- name: names
select t.name, q.name, p.name
from partitions p join queues q on q.id = p.queue_id join tenants t on t.id = q.tenant_id
where p.id = :partition_id
