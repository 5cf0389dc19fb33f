-- name: list
SELECT d.* FROM fairlane.dead_letters_where($1, $2, $3, $4, $5, $6, $7, $8) d
WHERE $9::timestamptz IS NULL OR (d.failed_at, d.id COLLATE "C") < ($9, $10::text COLLATE "C")
ORDER BY d.failed_at DESC, d.id COLLATE "C" DESC LIMIT $11;

-- name: count
SELECT count(*) FROM fairlane.dead_letters_where($1, $2, $3, $4, $5, $6, $7, $8) d;

-- name: oldest
SELECT d.* FROM fairlane.dead_letters_where($1, $2, $3, $4, $5, $6, $7, $8) d
ORDER BY d.failed_at, d.partition_id, d.position, d.group_id LIMIT $9;

-- name: lock
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

-- name: purge
DELETE FROM fairlane.dead_letters d
USING unnest($2::bigint[], $3::bigint[], $4::bigint[]) u(partition_id, group_id, position)
WHERE d.shard = $1 AND d.partition_id = u.partition_id AND d.group_id = u.group_id AND d.position = u.position;

-- name: options
SELECT q.options FROM fairlane.queues q WHERE q.id = $1;
