-- part: tenant
SELECT t.name, t.quotas::text, t.created_at FROM fairlane.tenants t

-- name: all
{tenant} ORDER BY t.name

-- name: get
{tenant} WHERE t.name = :name

-- name: make
INSERT INTO fairlane.tenants (name, quotas, created_at) VALUES (:name, :quotas, coalesce(:now, clock_timestamp()))
ON CONFLICT DO NOTHING RETURNING id

-- name: limit
UPDATE fairlane.tenants AS t SET quotas = :quotas WHERE t.name = :name RETURNING id

-- name: lock
SELECT t.id FROM fairlane.tenants t WHERE t.name = :name FOR UPDATE

-- name: queues
SELECT count(*) FROM fairlane.queues q WHERE q.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :name)

-- name: forget_messages (postgres)
WITH e AS (DELETE FROM fairlane.effects x WHERE x.tenant = :name),
     f AS (DELETE FROM fairlane.fan_ins x WHERE x.tenant = :name),
     p AS (DELETE FROM fairlane.fan_in_parts x WHERE x.tenant = :name),
     o AS (DELETE FROM fairlane.operations x WHERE x.tenant = :name)
DELETE FROM fairlane.operation_backlogs x WHERE x.tenant = :name

-- name: forget_messages (sqlite)
delete from effects where tenant = :name;
delete from fan_ins where tenant = :name;
delete from fan_in_parts where tenant = :name;
delete from operations where tenant = :name;
delete from operation_backlogs where tenant = :name

-- name: forget (postgres)
WITH r AS (DELETE FROM fairlane.shadow_records x WHERE x.source_id IN (SELECT s.id FROM fairlane.sources s WHERE s.tenant = :name)),
     y AS (DELETE FROM fairlane.shadow_copies x WHERE x.source_id IN (SELECT s.id FROM fairlane.sources s WHERE s.tenant = :name)),
     s AS (DELETE FROM fairlane.sources x WHERE x.tenant = :name),
     c AS (DELETE FROM fairlane.schedules x WHERE x.tenant = :name),
     p AS (DELETE FROM fairlane.specs x WHERE x.tenant = :name),
     d AS (DELETE FROM fairlane.declared_queues x WHERE x.tenant = :name),
     w AS (DELETE FROM fairlane.workers x WHERE x.tenant = :name),
     k AS (DELETE FROM fairlane.api_keys x WHERE x.tenant = :name),
     l AS (DELETE FROM fairlane.sessions x WHERE x.tenant = :name),
     z AS (DELETE FROM fairlane.snoozes x WHERE x.tenant = :name),
     q AS (DELETE FROM fairlane.stream_queries x
           WHERE x.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :name))
DELETE FROM fairlane.tenants x WHERE x.name = :name

-- name: forget (sqlite)
delete from shadow_copies where source_id in (select id from sources where tenant = :name);
delete from shadow_records where source_id in (select id from sources where tenant = :name);
delete from sources where tenant = :name;
delete from schedules where tenant = :name;
delete from specs where tenant = :name;
delete from declared_queues where tenant = :name;
delete from workers where tenant = :name;
delete from api_keys where tenant = :name;
delete from sessions where tenant = :name;
delete from snoozes where tenant = :name;
delete from stream_queries where tenant_id = (select id from tenants where name = :name);
delete from tenants where name = :name

-- name: counts
SELECT (SELECT count(*) FROM fairlane.queues q WHERE q.tenant_id = t.id),
       (SELECT count(*) FROM fairlane.queues q JOIN fairlane.groups g ON g.queue_id = q.id WHERE q.tenant_id = t.id),
       (SELECT count(*) FROM fairlane.schedules s WHERE s.tenant = :name)
FROM (SELECT (SELECT x.id FROM fairlane.tenants x WHERE x.name = :name) AS id) t

-- name: partitions
SELECT count(*) FROM fairlane.queues q JOIN fairlane.partitions p ON p.queue_id = q.id
WHERE q.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :name)

-- part: of_queues
= ANY (ARRAY(SELECT q.id FROM fairlane.queues q WHERE q.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :name)))

-- part: of_partitions
= ANY (ARRAY(SELECT p.id FROM fairlane.partitions p WHERE p.queue_id {of_queues}))

-- name: bytes
SELECT coalesce((SELECT sum(length(s.body)) FROM fairlane.segments s
                 WHERE s.partition_id {of_partitions}), 0)
     + coalesce((SELECT sum(length(m.body)) FROM fairlane.scheduled_segments s
                 JOIN fairlane.scheduled_messages m ON m.id = s.id
                 WHERE s.queue_id {of_queues}), 0)

-- name: other_bytes
SELECT coalesce((SELECT sum(octet_length(s.options)) FROM fairlane.schedules s WHERE s.tenant = :name), 0)
     + coalesce((SELECT sum(octet_length(w.facts)) FROM fairlane.workers w WHERE w.tenant = :name), 0)
     + coalesce((SELECT sum(octet_length(s.source) + octet_length(s.document)) FROM fairlane.specs s WHERE s.tenant = :name), 0)
     + coalesce((SELECT sum(octet_length(k.scopes)) FROM fairlane.api_keys k WHERE k.tenant = :name), 0)

-- name: other_bytes_of_messages
SELECT coalesce((SELECT sum(length(e.value)) FROM fairlane.effects e WHERE e.tenant = :name), 0)
     + coalesce((SELECT sum(length(t.data) + octet_length(t.names)) FROM fairlane.traces t
                 WHERE t.partition_id {of_partitions}), 0)
     + coalesce((SELECT sum(length(r.result)) FROM fairlane.results r
                 WHERE r.partition_id {of_partitions}), 0)
     + coalesce((SELECT sum(octet_length(s.key) + length(s.value)) FROM fairlane.stream_state s
                 WHERE s.partition_id {of_partitions}), 0)
     + coalesce((SELECT sum(octet_length(r.key) + octet_length(r.hash)) FROM fairlane.sources s
                 JOIN fairlane.shadow_records r ON r.source_id = s.id WHERE s.tenant = :name), 0)
     + coalesce((SELECT sum(length(c.data)) FROM fairlane.sources s
                 JOIN fairlane.shadow_copies c ON c.source_id = s.id WHERE s.tenant = :name), 0)
