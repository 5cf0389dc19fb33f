-- name: get
SELECT q.id, q.name, q.source_queue, q.sink_queue, q.config_hash
FROM fairlane.stream_queries q JOIN fairlane.tenants t ON t.id = q.tenant_id WHERE t.name = $1 AND q.id = $2;

-- name: insert
INSERT INTO fairlane.stream_queries (id, tenant_id, name, source_queue, sink_queue, config_hash, updated_at)
SELECT $1, t.id, $3, $4, $5, $6, coalesce($7, clock_timestamp()) FROM fairlane.tenants t WHERE t.name = $2
ON CONFLICT (tenant_id, name) DO NOTHING RETURNING id;

-- name: lock (lock)
SELECT q.id, q.name, q.source_queue, q.sink_queue, q.config_hash
FROM fairlane.stream_queries q JOIN fairlane.tenants t ON t.id = q.tenant_id WHERE t.name = $1 AND q.name = $2
FOR UPDATE OF q;

-- name: renew
UPDATE fairlane.stream_queries q
SET source_queue = $2, sink_queue = $3, config_hash = $4, updated_at = coalesce($5, clock_timestamp()) WHERE q.id = $1;

-- name: drop_state
DELETE FROM fairlane.stream_state s WHERE s.shard = $1 AND s.query_id = $2;

-- name: state
SELECT s.key, s.value, s.updated_at FROM fairlane.stream_state s
WHERE s.shard = $1 AND s.partition_id = $2 AND s.query_id = $3
  AND ($4::text[] IS NULL OR s.key = ANY ($4))
  AND starts_with(s.key, $5) AND s.key > $7
  AND ($6::double precision IS NULL OR s.window_end <= $6)
ORDER BY s.key LIMIT $8;

-- name: leased
-- Whether a consumer of a group holds a partition.
SELECT 1 FROM fairlane.partitions p
JOIN fairlane.groups g ON g.queue_id = p.queue_id AND g.name = $3
JOIN fairlane.cursors k ON k.shard = p.shard AND k.partition_id = p.id AND k.group_id = g.id
CROSS JOIN (SELECT coalesce($4, clock_timestamp()) AS now) t
WHERE p.shard = $1 AND p.id = $2 AND (
    (k.lease IS NOT NULL AND k.ready_at > t.now)
    OR EXISTS (SELECT 1 FROM fairlane.claims c
               WHERE c.shard = p.shard AND c.partition_id = p.id AND c.group_id = g.id AND c.ends_at > t.now)
    OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.shard = p.shard AND f.partition_id = p.id AND f.group_id = g.id
               AND f.token IS NOT NULL AND f.due_at > t.now));

-- name: lock_lane (lock)
-- No pop takes it until the cycle is over.
SELECT 1 FROM fairlane.cursors k
WHERE k.shard = $1 AND k.partition_id = $2 AND k.group_id = (
    SELECT g.id FROM fairlane.groups g JOIN fairlane.partitions p ON p.queue_id = g.queue_id
    WHERE p.shard = $1 AND p.id = $2 AND g.name = $3)
FOR UPDATE OF k;

-- name: keys_there
SELECT count(*) FROM fairlane.stream_state s
WHERE s.shard = $1 AND s.partition_id = $2 AND s.query_id = $3 AND s.key = ANY ($4);

-- name: share (lock)
-- Whoever drops the state of the query waits until the cycle is over, and the cycle until the state is dropped.
SELECT 1 FROM fairlane.stream_queries q WHERE q.id = $1 FOR SHARE;

-- name: partition_there (in exists)
SELECT 1 FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id WHERE p.shard = $1 AND p.id = $2;

-- name: delete_state
DELETE FROM fairlane.stream_state s WHERE s.shard = $1 AND s.partition_id = $2 AND s.query_id = $3 AND s.key = ANY ($4);

-- name: put_state
INSERT INTO fairlane.stream_state AS s (shard, partition_id, query_id, key, window_end, value, updated_at)
SELECT $1, $2, $3, u.key, u.window_end, u.value, coalesce($7, clock_timestamp())
FROM unnest($4::text[], $5::double precision[], $6::bytea[]) u(key, window_end, value)
ON CONFLICT (shard, partition_id, query_id, key) DO UPDATE
SET window_end = excluded.window_end, value = excluded.value, updated_at = excluded.updated_at;
