-- name: pause_queue
UPDATE fairlane.queues q SET paused_at = coalesce(q.paused_at, $2, clock_timestamp()) WHERE q.id = $1 RETURNING q.id;

-- name: pause_group
UPDATE fairlane.groups g SET paused_at = coalesce(g.paused_at, $3, clock_timestamp())
WHERE g.id = $2 AND g.queue_id = $1 RETURNING g.id;

-- name: pause_partition
UPDATE fairlane.partitions p SET paused_at = coalesce(p.paused_at, $4, clock_timestamp())
WHERE p.shard = $2 AND p.id = $3 AND p.queue_id = $1 RETURNING p.id;

-- name: park_lane
UPDATE fairlane.cursors k SET parked = true
WHERE k.shard = $2 AND k.partition_id = $3 AND k.group_id = $4
  AND EXISTS (SELECT 1 FROM fairlane.groups g WHERE g.id = $4 AND g.queue_id = $1) RETURNING k.group_id;

-- name: resume_queue
UPDATE fairlane.queues q SET paused_at = NULL WHERE q.id = $1 AND q.paused_at IS NOT NULL RETURNING q.id;

-- name: resume_group
UPDATE fairlane.groups g SET paused_at = NULL WHERE g.id = $2 AND g.queue_id = $1 AND g.paused_at IS NOT NULL RETURNING g.id;

-- name: lock_partition (lock)
SELECT p.paused_at FROM fairlane.partitions p WHERE p.shard = $2 AND p.id = $3 AND p.queue_id = $1 FOR NO KEY UPDATE;

-- name: lock_cursors (lock)
-- In a statement of its own: a pop in flight that stops a lane is over then, and the next statement sees that it did.
SELECT k.group_id FROM fairlane.cursors k WHERE k.shard = $1 AND k.partition_id = $2 ORDER BY k.group_id FOR UPDATE;

-- name: resume_partition
UPDATE fairlane.partitions p SET paused_at = NULL WHERE p.shard = $1 AND p.id = $2;

-- name: wake_partition
-- Lanes that are stopped for another reason as well are put off again by the pop that meets them.
UPDATE fairlane.cursors k SET ready_at = coalesce($3, clock_timestamp())
WHERE k.shard = $1 AND k.partition_id = $2 AND k.ready_at = fairlane.never();

-- name: resume_lanes (steps)
SELECT fairlane.resume_lanes($1, $2, $3, $4);

-- name: queue
SELECT q.paused_at FROM fairlane.queues q WHERE q.id = $1;

-- name: groups
SELECT g.name, g.paused_at FROM fairlane.groups g WHERE g.queue_id = $1 AND g.paused_at IS NOT NULL ORDER BY g.name;

-- name: partitions
SELECT p.name::text, p.paused_at FROM fairlane.partitions p
WHERE p.shard = $1 AND p.queue_id = $2 AND p.paused_at IS NOT NULL ORDER BY p.name LIMIT 1000;
