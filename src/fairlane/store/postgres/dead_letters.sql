-- name: list (steps)
SELECT d.* FROM fairlane.dead_letters_where($1, $2, $3, $4, $5, $6, $7, $8, $9) d
WHERE $10::timestamptz IS NULL OR (d.failed_at, d.id COLLATE "C") < ($10, $11::text COLLATE "C")
ORDER BY d.failed_at DESC, d.id COLLATE "C" DESC LIMIT $12;

-- name: count
SELECT count(*) FROM fairlane.dead_letters_where($1, $2, $3, $4, $5, $6, $7, $8, $9) d;

-- name: oldest (steps)
SELECT d.* FROM fairlane.dead_letters_where($1, $2, $3, $4, $5, $6, $7, $8, $9) d
ORDER BY d.failed_at, d.partition_id, d.position, d.group_id LIMIT $10;

-- name: lock (lock)
-- Those of the given dead letters that nobody replayed meanwhile.
SELECT d.partition_id, d.group_id, d.position FROM fairlane.dead_letters d
JOIN unnest($2::bigint[], $3::bigint[], $4::bigint[]) u(partition_id, group_id, position)
  ON u.partition_id = d.partition_id AND u.group_id = d.group_id AND u.position = d.position
WHERE d.shard = $1 AND d.replayed_at IS NULL
ORDER BY d.partition_id, d.group_id, d.position FOR UPDATE OF d;

-- name: replayed
UPDATE fairlane.dead_letters d SET replayed_at = coalesce($6, clock_timestamp()), replayed_as = u.replayed_as
FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::text[]) u(partition_id, group_id, position, replayed_as)
WHERE d.shard = $1 AND d.partition_id = u.partition_id AND d.group_id = u.group_id AND d.position = u.position;

-- name: delete
-- Those that were seen: a message that was given up again since then is another letter.
DELETE FROM fairlane.dead_letters d
USING unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::timestamptz[]) u(partition_id, group_id, position, failed_at)
WHERE d.shard = $1 AND d.partition_id = u.partition_id AND d.group_id = u.group_id AND d.position = u.position
  AND d.failed_at = u.failed_at
RETURNING d.position;

-- name: lock_cursors (lock)
-- A pop that moves cursors without holding their partitions is over when these locks are had.
SELECT k.partition_id FROM fairlane.cursors k
WHERE k.shard = $1 AND k.partition_id = ANY ($2) ORDER BY k.partition_id, k.group_id FOR UPDATE;

-- name: options (in options_and_depth)
SELECT q.options FROM fairlane.queues q WHERE q.id = $1;

-- name: pending
-- Letters that wait to be appended to the queue that is named for them, longest first.
SELECT concat_ws('-', d.shard, d.partition_id, d.group_id, d.position) AS id, d.shard, d.partition_id, d.group_id, d.position,
       q.name AS queue, p.name::text AS partition_name, g.name AS "group", d.message, d.message_created_at, d.error, d.attempts,
       d.first_failed_at, d.failed_at, d.replayed_at, d.replayed_as, d.history, t.name AS tenant,
       CASE WHEN jsonb_typeof(q.options -> 'dead_letter_queue') = 'string' THEN q.options ->> 'dead_letter_queue' END AS target
FROM fairlane.dead_letters d
JOIN fairlane.queues q ON q.id = d.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id
JOIN fairlane.groups g ON g.id = d.group_id
JOIN fairlane.partitions p ON p.shard = d.shard AND p.id = d.partition_id
WHERE d.shard = $1 AND d.forward_at <= coalesce($2, now())
ORDER BY d.forward_at LIMIT $3;

-- name: lock_pending (lock)
SELECT d.partition_id, d.group_id, d.position FROM fairlane.dead_letters d
JOIN unnest($2::bigint[], $3::bigint[], $4::bigint[]) u(partition_id, group_id, position)
  ON u.partition_id = d.partition_id AND u.group_id = d.group_id AND u.position = d.position
WHERE d.shard = $1 AND d.forward_at <= coalesce($5, clock_timestamp())
ORDER BY d.partition_id, d.group_id, d.position FOR UPDATE OF d;

-- name: postpone
-- For so many seconds; without them it waits no more.
UPDATE fairlane.dead_letters d SET forward_at = coalesce($6, clock_timestamp()) + make_interval(secs => $5::int)
FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) u(partition_id, group_id, position)
WHERE d.shard = $1 AND d.partition_id = u.partition_id AND d.group_id = u.group_id AND d.position = u.position;

-- name: make_room
-- A dead letter has its place beyond the limit of the queue that it goes to.
UPDATE fairlane.queues q SET depth = $2 WHERE q.id = $1;

-- name: depth (in options_and_depth)
SELECT q.depth FROM fairlane.queues q WHERE q.id = $1;

-- name: names
SELECT p.id, t.name AS tenant, q.name AS queue, p.name AS partition
FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id JOIN fairlane.tenants t ON t.id = q.tenant_id
WHERE p.shard = $1 AND p.id = ANY ($2::bigint[]);
