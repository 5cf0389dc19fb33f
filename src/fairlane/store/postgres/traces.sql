-- name: tenant_of
SELECT q.tenant_id FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id WHERE p.shard = $1 AND p.id = $2;

-- name: add
INSERT INTO fairlane.traces (shard, partition_id, transaction_id, id, created_at, group_name, event_type, data, names)
VALUES ($1, $2, $3, $4, coalesce($5, clock_timestamp()), $6, $7, $8, $9)
ON CONFLICT DO NOTHING RETURNING created_at;

-- name: add_names
INSERT INTO fairlane.trace_names (shard, tenant_id, name, created_at, trace_id, partition_id, transaction_id)
SELECT DISTINCT $1::int, $2::bigint, n, $4::timestamptz, $5::text, $6::bigint, $7::text FROM unnest($3::text[]) n;

-- name: of_message
SELECT t.id, t.shard, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at
FROM fairlane.traces t WHERE t.shard = $1 AND t.partition_id = $2 AND t.transaction_id = $3
ORDER BY t.created_at, t.id LIMIT $4;

-- name: named
SELECT t.id, t.shard, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at
FROM (SELECT n.* FROM fairlane.trace_names n
      WHERE n.shard = ANY ($1) AND n.name = $3 AND n.tenant_id = (SELECT o.id FROM fairlane.tenants o WHERE o.name = $2)
      ORDER BY n.created_at, n.trace_id LIMIT $4 OFFSET $5) n
JOIN fairlane.traces t ON t.shard = n.shard AND t.partition_id = n.partition_id AND t.transaction_id = n.transaction_id
                      AND t.id = n.trace_id
ORDER BY n.created_at, n.trace_id;

-- name: count_named
SELECT count(*) FROM fairlane.trace_names n
WHERE n.shard = ANY ($1) AND n.name = $3 AND n.tenant_id = (SELECT o.id FROM fairlane.tenants o WHERE o.name = $2);

-- name: names
SELECT n.name, count(*) AS traces, count(DISTINCT (n.shard, n.partition_id, n.transaction_id)) AS messages,
       max(n.created_at) AS last_at
FROM fairlane.trace_names n
WHERE n.shard = ANY ($1) AND n.tenant_id = (SELECT o.id FROM fairlane.tenants o WHERE o.name = $2)
GROUP BY n.name ORDER BY last_at DESC, n.name LIMIT $3 OFFSET $4;

-- name: count_names
SELECT count(DISTINCT n.name) FROM fairlane.trace_names n
WHERE n.shard = ANY ($1) AND n.tenant_id = (SELECT o.id FROM fairlane.tenants o WHERE o.name = $2);
