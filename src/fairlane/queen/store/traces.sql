-- Rows of a queue that was deleted go in steps: until then the joins with `queues` leave them out.

-- name: tenant_of
SELECT q.tenant_id FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id
WHERE p.id = :partition_id

-- name: add
INSERT INTO fairlane.traces (partition_id, transaction_id, id, created_at, group_name, event_type, data, names)
VALUES (:partition_id, :transaction_id, :id, coalesce(:now, clock_timestamp()), :group, :event_type, :data, :names)
ON CONFLICT DO NOTHING RETURNING created_at

-- name: add_names (postgres)
INSERT INTO fairlane.trace_names (tenant_id, name, created_at, trace_id, partition_id, transaction_id)
SELECT DISTINCT :tenant_id::bigint, n, :created_at::timestamptz, :id::text, :partition_id::bigint,
       :transaction_id::text
FROM json_array_elements_text(:names::json) n

-- name: add_names (sqlite)
insert into trace_names (tenant_id, name, created_at, trace_id, partition_id, transaction_id)
select distinct :tenant_id, n.value, :created_at, :id, :partition_id, :transaction_id from json_each(:names) n

-- part: joined
FROM fairlane.trace_names n
JOIN fairlane.tenants o ON o.id = n.tenant_id
JOIN fairlane.partitions p ON p.id = n.partition_id
JOIN fairlane.queues q ON q.id = p.queue_id

-- part: by_tenant
o.name = :tenant AND (:queue_ids::bigint[] IS NULL OR q.id = ANY (:queue_ids))

-- part: trace
t.id, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at

-- name: of_message
SELECT {trace}
FROM fairlane.traces t
JOIN fairlane.partitions p ON p.id = t.partition_id
JOIN fairlane.queues q ON q.id = p.queue_id
WHERE t.partition_id = :partition_id AND t.transaction_id = :transaction_id
ORDER BY t.created_at, t.id LIMIT :limit

-- name: named
SELECT {trace}
{joined}
JOIN fairlane.traces t ON t.partition_id = n.partition_id AND t.transaction_id = n.transaction_id AND t.id = n.trace_id
WHERE {by_tenant} AND n.name = :name
ORDER BY n.created_at, n.trace_id LIMIT :limit OFFSET :offset

-- name: count_named
SELECT count(*) {joined} WHERE {by_tenant} AND n.name = :name

-- name: names
SELECT n.name, count(*) AS traces, count(DISTINCT n.partition_id || ' ' || n.transaction_id) AS messages, max(n.created_at) AS last_at
{joined} WHERE {by_tenant}
GROUP BY n.name ORDER BY last_at DESC, n.name LIMIT :limit OFFSET :offset

-- name: count_names
SELECT count(DISTINCT n.name) {joined} WHERE {by_tenant}
