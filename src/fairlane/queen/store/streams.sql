-- part: query
SELECT q.id, q.name, q.source_queue, q.sink_queue, q.config_hash
FROM fairlane.stream_queries q JOIN fairlane.tenants t ON t.id = q.tenant_id
WHERE t.name = :tenant

-- name: get
{query} AND q.id = :id

-- name: lock
{query} AND q.name = :name FOR UPDATE OF q

-- name: insert
INSERT INTO fairlane.stream_queries (id, tenant_id, name, source_queue, sink_queue, config_hash, updated_at)
SELECT :id, t.id, :name, :source_queue, :sink_queue, :config_hash, coalesce(:now, clock_timestamp())
FROM fairlane.tenants t WHERE t.name = :tenant
ON CONFLICT (tenant_id, name) DO NOTHING RETURNING id

-- name: renew
UPDATE fairlane.stream_queries AS q
SET source_queue = :source_queue, sink_queue = :sink_queue, config_hash = :config_hash,
    updated_at = coalesce(:now, clock_timestamp()) WHERE q.id = :id

-- name: drop_state
DELETE FROM fairlane.stream_state AS s WHERE s.query_id = :query_id

-- name: state
SELECT s.key, s.value, s.updated_at FROM fairlane.stream_state s
WHERE s.partition_id = :partition_id AND s.query_id = :query_id
  AND (:keys::text[] IS NULL OR s.key = ANY (:keys))
  AND substr(s.key, 1, length(:prefix)) = :prefix AND s.key > :after
  AND (:ripe_until::double precision IS NULL OR s.window_end <= :ripe_until)
ORDER BY s.key LIMIT :limit

-- name: leased
-- Whether a consumer of a group holds a partition.
SELECT 1 FROM fairlane.partitions p
JOIN fairlane.groups g ON g.queue_id = p.queue_id AND g.name = :group
JOIN fairlane.cursors k ON k.partition_id = p.id AND k.group_id = g.id
WHERE p.id = :partition_id AND (
    (k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp()))
    OR EXISTS (SELECT 1 FROM fairlane.claims c
               WHERE c.partition_id = p.id AND c.group_id = g.id AND c.ends_at > coalesce(:now, clock_timestamp()))
    OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = p.id AND f.group_id = g.id
               AND f.token IS NOT NULL AND f.due_at > coalesce(:now, clock_timestamp())))

-- name: lock_lane (postgres, lock)
-- No pop takes it until the cycle is over.
SELECT 1 FROM fairlane.cursors k
WHERE k.partition_id = :partition_id AND k.group_id = (
    SELECT g.id FROM fairlane.groups g JOIN fairlane.partitions p ON p.queue_id = g.queue_id
    WHERE p.id = :partition_id AND g.name = :group)
FOR UPDATE OF k

-- name: keys_there
SELECT s.key FROM fairlane.stream_state s
WHERE s.partition_id = :partition_id AND s.query_id = :query_id AND s.key = ANY (:keys)

-- name: share
-- A reset of the query waits for running cycles, and a cycle waits for a running reset.
SELECT 1 FROM fairlane.stream_queries q WHERE q.id = :query_id FOR SHARE

-- name: partition_there
SELECT 1 FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id
WHERE p.id = :partition_id

-- name: delete_state
DELETE FROM fairlane.stream_state AS s
WHERE s.partition_id = :partition_id AND s.query_id = :query_id AND s.key = ANY (:keys)

-- name: put_state (postgres)
INSERT INTO fairlane.stream_state AS s (partition_id, query_id, key, window_end, value, updated_at)
SELECT :partition_id, :query_id, u.key, u.window_end, u.value, coalesce(:now, clock_timestamp())
FROM unnest(:keys::text[], :window_ends::double precision[], :values::bytea[]) u(key, window_end, value)
ON CONFLICT (partition_id, query_id, key) DO UPDATE
SET window_end = excluded.window_end, value = excluded.value, updated_at = excluded.updated_at

-- name: put_state (sqlite)
-- Each:
insert or replace into stream_state (partition_id, query_id, key, window_end, updated_at, value)
values (:partition_id, :query_id, :keys, :window_ends, :now, :values)
