-- name: pause_queue
update queues set paused_at = coalesce(paused_at, ?2) where id = ?1 returning id

-- name: pause_group
update groups set paused_at = coalesce(paused_at, ?3) where id = ?2 and queue_id = ?1 returning id

-- name: pause_partition
update partitions set paused_at = coalesce(paused_at, ?3) where id = ?2 and queue_id = ?1 returning id

-- name: park_lane
update cursors set parked = 1
where partition_id = ?2 and group_id = ?3
    and exists (select 1 from partitions where id = ?2 and queue_id = ?1)
    and exists (select 1 from groups where id = ?3 and queue_id = ?1)
returning group_id

-- name: resume_queue
update queues set paused_at = null where id = ?1 and paused_at is not null returning id

-- name: resume_group
update groups set paused_at = null where id = ?2 and queue_id = ?1 and paused_at is not null returning id

-- name: resume_partition
update partitions set paused_at = null where id = ?2 and queue_id = ?1 and paused_at is not null returning id

-- name: wake_partition
-- Lanes that are stopped for another reason as well are put off again by the pop that meets them.
update cursors set ready_at = ?2 where partition_id = ?1 and ready_at = ?3

-- name: stopped_lanes (in resume_lanes)
select c.partition_id
from groups g
join partitions p on p.queue_id = g.queue_id
join cursors c on c.partition_id = p.id and c.group_id = g.id
left join failures f on f.partition_id = p.id and f.group_id = g.id and f.position = c.committed
join queues q on q.id = g.queue_id
where g.id = ?1 and (?2 is null or p.id = ?2)
    and (c.parked or c.ready_at = ?3 and f.attempts > (q.options ->> '$.retry_limit'))

-- name: forget_failure (in resume_lanes)
delete from failures where partition_id = ? and group_id = ? and position = ? and due_at is null

-- name: queue
select paused_at from queues where id = ?

-- name: groups
select name, paused_at from groups where queue_id = ? and paused_at is not null order by name

-- name: partitions
select name, paused_at from partitions where queue_id = ? and paused_at is not null order by name limit 1000
