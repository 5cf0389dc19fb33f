-- part: seen
(:queue_ids::bigint[] IS NULL OR EXISTS (
    SELECT FROM fairlane.partitions p
    WHERE p.shard = n.shard AND p.id = n.partition_id AND p.queue_id = ANY (:queue_ids)))

-- name: tenant_of
SELECT q.tenant_id FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id
WHERE p.shard = :shard AND p.id = :partition_id;

-- name: add
INSERT INTO fairlane.traces (shard, partition_id, transaction_id, id, created_at, group_name, event_type, data, names)
VALUES (:shard, :partition_id, :transaction_id, :id, coalesce(:now, clock_timestamp()), :group, :event_type, :data, :names)
ON CONFLICT DO NOTHING RETURNING created_at;

-- name: add_names
INSERT INTO fairlane.trace_names (shard, tenant_id, name, created_at, trace_id, partition_id, transaction_id)
SELECT DISTINCT :shard::int, :tenant_id::bigint, n, :created_at::timestamptz, :id::text, :partition_id::bigint,
       :transaction_id::text
FROM json_array_elements_text(:names::json) n;

-- name: of_message
-- Joins with the queue would cross shards; a partition that was deleted is not asked for.
SELECT t.id, t.shard, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at
FROM fairlane.traces t
WHERE t.shard = :shard AND t.partition_id = :partition_id AND t.transaction_id = :transaction_id
ORDER BY t.created_at, t.id LIMIT :limit;

-- name: named
SELECT t.id, t.shard, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at
FROM (SELECT n.* FROM fairlane.trace_names n
      WHERE n.shard = ANY (ARRAY(SELECT h.shard FROM fairlane.shards h)) AND n.name = :name
        AND n.tenant_id = (SELECT o.id FROM fairlane.tenants o WHERE o.name = :tenant) AND {seen}
      ORDER BY n.created_at, n.trace_id LIMIT :limit OFFSET :offset) n
JOIN fairlane.traces t ON t.shard = n.shard AND t.partition_id = n.partition_id AND t.transaction_id = n.transaction_id
                      AND t.id = n.trace_id
ORDER BY n.created_at, n.trace_id;

-- name: count_named
SELECT count(*) FROM fairlane.trace_names n
WHERE n.shard = ANY (ARRAY(SELECT h.shard FROM fairlane.shards h)) AND n.name = :name
  AND n.tenant_id = (SELECT o.id FROM fairlane.tenants o WHERE o.name = :tenant) AND {seen};

-- name: names
SELECT n.name, count(*) AS traces, count(DISTINCT (n.shard, n.partition_id, n.transaction_id)) AS messages,
       max(n.created_at) AS last_at
FROM fairlane.trace_names n
WHERE n.shard = ANY (ARRAY(SELECT h.shard FROM fairlane.shards h))
  AND n.tenant_id = (SELECT o.id FROM fairlane.tenants o WHERE o.name = :tenant) AND {seen}
GROUP BY n.name ORDER BY last_at DESC, n.name LIMIT :limit OFFSET :offset;

-- name: count_names
SELECT count(DISTINCT n.name) FROM fairlane.trace_names n
WHERE n.shard = ANY (ARRAY(SELECT h.shard FROM fairlane.shards h))
  AND n.tenant_id = (SELECT o.id FROM fairlane.tenants o WHERE o.name = :tenant) AND {seen};
