-- name: pause_queue
UPDATE fairlane.queues q SET paused_at = coalesce(q.paused_at, :now, clock_timestamp()) WHERE q.id = :queue_id RETURNING q.id;

-- name: pause_group
UPDATE fairlane.groups g SET paused_at = coalesce(g.paused_at, :now, clock_timestamp())
WHERE g.id = :group_id AND g.queue_id = :queue_id RETURNING g.id;

-- name: pause_partition
UPDATE fairlane.partitions p SET paused_at = coalesce(p.paused_at, :now, clock_timestamp())
WHERE p.shard = :shard AND p.id = :partition_id AND p.queue_id = :queue_id RETURNING p.id;

-- name: park_lane
UPDATE fairlane.cursors k SET parked = true
WHERE k.shard = :shard AND k.partition_id = :partition_id AND k.group_id = :group_id
  AND EXISTS (SELECT 1 FROM fairlane.groups g WHERE g.id = :group_id AND g.queue_id = :queue_id) RETURNING k.group_id;

-- name: resume_queue
UPDATE fairlane.queues q SET paused_at = NULL WHERE q.id = :queue_id AND q.paused_at IS NOT NULL RETURNING q.id;

-- name: resume_group
UPDATE fairlane.groups g SET paused_at = NULL
WHERE g.id = :group_id AND g.queue_id = :queue_id AND g.paused_at IS NOT NULL RETURNING g.id;

-- name: lock_partition (lock)
SELECT 1 FROM fairlane.partitions p
WHERE p.shard = :shard AND p.id = :partition_id AND p.queue_id = :queue_id FOR NO KEY UPDATE;

-- name: lock_cursors (lock)
-- In a statement of its own: a pop in flight that stops a lane is over then, and the next statement sees that it did.
SELECT 1 FROM fairlane.cursors k WHERE k.shard = :shard AND k.partition_id = :partition_id ORDER BY k.group_id FOR UPDATE;

-- name: resume_partition
UPDATE fairlane.partitions p SET paused_at = NULL
WHERE p.shard = :shard AND p.id = :partition_id AND p.queue_id = :queue_id AND p.paused_at IS NOT NULL RETURNING p.id;

-- name: wake_partition
-- Lanes that are stopped for another reason as well are put off again by the pop that meets them.
UPDATE fairlane.cursors k SET ready_at = coalesce(:now, clock_timestamp())
WHERE k.shard = :shard AND k.partition_id = :partition_id AND k.ready_at = fairlane.never();

-- name: resume_lanes (steps)
SELECT fairlane.resume_lanes(:shard, :group_id, :partition_id, :now);

-- name: queue
SELECT q.paused_at FROM fairlane.queues q WHERE q.id = :queue_id;

-- name: groups
SELECT g.name, g.paused_at FROM fairlane.groups g WHERE g.queue_id = :queue_id AND g.paused_at IS NOT NULL ORDER BY g.name;

-- name: partitions
SELECT p.name::text, p.paused_at FROM fairlane.partitions p
WHERE p.shard = :shard AND p.queue_id = :queue_id AND p.paused_at IS NOT NULL ORDER BY p.name LIMIT 1000;

-- name: queues
SELECT q.id FROM fairlane.queues q WHERE q.id = ANY (:queue_ids) AND q.paused_at IS NOT NULL;
