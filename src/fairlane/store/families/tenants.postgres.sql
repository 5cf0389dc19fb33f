-- part: tenant
SELECT t.name, t.quotas::text, t.created_at FROM fairlane.tenants t

-- name: list
{tenant} ORDER BY t.name;

-- name: get
{tenant} WHERE t.name = :name;

-- name: make
INSERT INTO fairlane.tenants (name, quotas, created_at) VALUES (:name, :quotas, coalesce(:now, clock_timestamp()))
ON CONFLICT DO NOTHING RETURNING id;

-- name: limit
UPDATE fairlane.tenants t SET quotas = :quotas WHERE t.name = :name RETURNING t.id;

-- name: lock
SELECT t.id FROM fairlane.tenants t WHERE t.name = :name FOR UPDATE;

-- name: queues
SELECT count(*) FROM fairlane.queues q WHERE q.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :name);

-- name: forget_shard
WITH e AS (DELETE FROM fairlane.effects x WHERE x.shard = :shard AND x.tenant = :name),
     o AS (DELETE FROM fairlane.operations x WHERE x.shard = :shard AND x.tenant = :name)
DELETE FROM fairlane.operation_backlogs x WHERE x.shard = :shard AND x.tenant = :name;

-- name: forget
WITH r AS (DELETE FROM fairlane.shadow_records x WHERE x.shard = 0
           AND x.source_id IN (SELECT s.id FROM fairlane.sources s WHERE s.tenant = :name)),
     y AS (DELETE FROM fairlane.shadow_copies x WHERE x.shard = 0
           AND x.source_id IN (SELECT s.id FROM fairlane.sources s WHERE s.tenant = :name)),
     s AS (DELETE FROM fairlane.sources x WHERE x.tenant = :name),
     c AS (DELETE FROM fairlane.schedules x WHERE x.tenant = :name),
     p AS (DELETE FROM fairlane.specs x WHERE x.tenant = :name),
     d AS (DELETE FROM fairlane.declared_queues x WHERE x.tenant = :name),
     w AS (DELETE FROM fairlane.workers x WHERE x.tenant = :name),
     k AS (DELETE FROM fairlane.api_keys x WHERE x.tenant = :name),
     l AS (DELETE FROM fairlane.sessions x WHERE x.tenant = :name),
     q AS (DELETE FROM fairlane.stream_queries x
           WHERE x.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :name))
DELETE FROM fairlane.tenants x WHERE x.name = :name;

-- name: counts
SELECT (SELECT count(*) FROM fairlane.queues q WHERE q.tenant_id = t.id),
       (SELECT count(*) FROM fairlane.queues q JOIN fairlane.groups g ON g.queue_id = q.id WHERE q.tenant_id = t.id),
       (SELECT count(*) FROM fairlane.schedules s WHERE s.tenant = :name)
FROM (SELECT (SELECT x.id FROM fairlane.tenants x WHERE x.name = :name) AS id) t;

-- name: partitions
SELECT count(*) FROM fairlane.queues q JOIN fairlane.partitions p ON p.shard = :shard AND p.queue_id = q.id
WHERE q.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :name);

-- part: queues
ARRAY(SELECT q.id FROM fairlane.queues q WHERE q.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :name))

-- part: partitions
ARRAY(SELECT p.id FROM fairlane.partitions p WHERE p.shard = :shard AND p.queue_id = ANY ({queues}))

-- name: bytes
SELECT coalesce((SELECT sum(length(s.body)) FROM fairlane.segments s
                 WHERE s.shard = :shard AND s.partition_id = ANY ({partitions})), 0)
     + coalesce((SELECT sum(length(m.body)) FROM fairlane.scheduled_segments s
                 JOIN fairlane.scheduled_messages m ON m.shard = :shard AND m.id = s.id
                 WHERE s.shard = :shard AND s.queue_id = ANY ({queues})), 0);

-- name: other_bytes
SELECT coalesce((SELECT sum(octet_length(s.options)) FROM fairlane.schedules s WHERE s.tenant = :name), 0)
     + coalesce((SELECT sum(octet_length(w.facts)) FROM fairlane.workers w WHERE w.tenant = :name), 0)
     + coalesce((SELECT sum(octet_length(s.source) + octet_length(s.document)) FROM fairlane.specs s WHERE s.tenant = :name), 0)
     + coalesce((SELECT sum(octet_length(k.scopes)) FROM fairlane.api_keys k WHERE k.tenant = :name), 0);

-- name: other_bytes_shard
SELECT coalesce((SELECT sum(length(e.value)) FROM fairlane.effects e WHERE e.shard = :shard AND e.tenant = :name), 0)
     + coalesce((SELECT sum(length(t.data) + octet_length(t.names)) FROM fairlane.traces t
                 WHERE t.shard = :shard AND t.partition_id = ANY ({partitions})), 0)
     + coalesce((SELECT sum(length(r.result)) FROM fairlane.results r
                 WHERE r.shard = :shard AND r.partition_id = ANY ({partitions})), 0)
     + coalesce((SELECT sum(octet_length(s.key) + length(s.value)) FROM fairlane.stream_state s
                 WHERE s.shard = :shard AND s.partition_id = ANY ({partitions})), 0)
     + coalesce((SELECT sum(octet_length(r.key) + octet_length(r.hash)) FROM fairlane.sources s
                 JOIN fairlane.shadow_records r ON r.shard = :shard AND r.source_id = s.id WHERE s.tenant = :name), 0)
     + coalesce((SELECT sum(length(c.data)) FROM fairlane.sources s
                 JOIN fairlane.shadow_copies c ON c.shard = :shard AND c.source_id = s.id WHERE s.tenant = :name), 0);
