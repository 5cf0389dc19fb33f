-- name: pause_queue
update queues set paused_at = coalesce(paused_at, :now) where id = :queue_id returning id

-- name: pause_group
update groups set paused_at = coalesce(paused_at, :now) where id = :group_id and queue_id = :queue_id returning id

-- name: pause_partition
update partitions set paused_at = coalesce(paused_at, :now) where id = :partition_id and queue_id = :queue_id returning id

-- name: park_lane
update cursors set parked = 1
where partition_id = :partition_id and group_id = :group_id
    and exists (select 1 from partitions where id = :partition_id and queue_id = :queue_id)
    and exists (select 1 from groups where id = :group_id and queue_id = :queue_id)
returning group_id

-- name: resume_queue
update queues set paused_at = null where id = :queue_id and paused_at is not null returning id

-- name: resume_group
update groups set paused_at = null where id = :group_id and queue_id = :queue_id and paused_at is not null returning id

-- name: resume_partition
update partitions set paused_at = null where id = :partition_id and queue_id = :queue_id and paused_at is not null returning id

-- name: wake_partition
-- Lanes that are stopped for another reason as well are put off again by the pop that meets them.
update cursors set ready_at = :now where partition_id = :partition_id and ready_at = :never

-- name: queue
select paused_at from queues where id = :queue_id

-- name: groups
select name, paused_at from groups where queue_id = :queue_id and paused_at is not null order by name

-- name: partitions
select name, paused_at from partitions indexed by partitions_paused
where queue_id = :queue_id and paused_at is not null order by name limit 1000

-- name: queues
select id from queues where id in (select value from json_each(:queue_ids)) and paused_at is not null
