-- name: pause_queue
UPDATE fairlane.queues AS q SET paused_at = coalesce(q.paused_at, coalesce(:now, clock_timestamp())) WHERE q.id = :queue_id RETURNING id

-- name: pause_group
UPDATE fairlane.groups AS g SET paused_at = coalesce(g.paused_at, coalesce(:now, clock_timestamp()))
WHERE g.id = :group_id AND g.queue_id = :queue_id RETURNING id

-- name: pause_partition
UPDATE fairlane.partitions AS p SET paused_at = coalesce(p.paused_at, coalesce(:now, clock_timestamp()))
WHERE p.id = :partition_id AND p.queue_id = :queue_id RETURNING id

-- name: park_lane
UPDATE fairlane.cursors AS k SET parked = true
WHERE k.partition_id = :partition_id AND k.group_id = :group_id
  AND EXISTS (SELECT 1 FROM fairlane.partitions p WHERE p.id = :partition_id AND p.queue_id = :queue_id)
  AND EXISTS (SELECT 1 FROM fairlane.groups g WHERE g.id = :group_id AND g.queue_id = :queue_id)
RETURNING group_id

-- name: resume_queue
UPDATE fairlane.queues AS q SET paused_at = NULL WHERE q.id = :queue_id AND q.paused_at IS NOT NULL RETURNING id

-- name: resume_group
UPDATE fairlane.groups AS g SET paused_at = NULL
WHERE g.id = :group_id AND g.queue_id = :queue_id AND g.paused_at IS NOT NULL RETURNING id

-- name: lock_partition (postgres, lock)
SELECT 1 FROM fairlane.partitions p
WHERE p.id = :partition_id AND p.queue_id = :queue_id FOR NO KEY UPDATE

-- name: lock_cursors (postgres, lock)
-- A separate statement. It waits for pops in flight that stop a lane, so that the next statement sees the result.
SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = :partition_id ORDER BY k.group_id FOR UPDATE

-- name: resume_partition
UPDATE fairlane.partitions AS p SET paused_at = NULL
WHERE p.id = :partition_id AND p.queue_id = :queue_id AND p.paused_at IS NOT NULL RETURNING id

-- name: wake_partition
-- Lanes that are stopped for another reason too go back to sleep at the next pop.
UPDATE fairlane.cursors AS k SET ready_at = coalesce(:now, clock_timestamp())
WHERE k.partition_id = :partition_id AND k.ready_at = fairlane.never()

-- name: resume_lanes (postgres, steps)
SELECT fairlane.resume_lanes(:group_id, :partition_id, :now)

-- name: queue
SELECT q.paused_at FROM fairlane.queues q WHERE q.id = :queue_id

-- name: groups
SELECT g.name, g.paused_at FROM fairlane.groups g WHERE g.queue_id = :queue_id AND g.paused_at IS NOT NULL ORDER BY g.name

-- name: partitions (postgres)
SELECT p.name::text, p.paused_at FROM fairlane.partitions p
WHERE p.queue_id = :queue_id AND p.paused_at IS NOT NULL ORDER BY p.name LIMIT 1000

-- name: partitions (sqlite)
select name, paused_at from partitions indexed by partitions_paused
where queue_id = :queue_id and paused_at is not null order by name limit 1000

-- name: queues
SELECT q.id FROM fairlane.queues q WHERE q.id = ANY (:queue_ids) AND q.paused_at IS NOT NULL
