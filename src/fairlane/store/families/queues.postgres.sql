-- name: tenant_id
SELECT t.id FROM fairlane.tenants t WHERE t.name = :tenant;

-- part: any
SELECT q.id, t.name AS tenant, q.name, q.namespace, q.task, q.options, q.created_at
FROM fairlane.queues q JOIN fairlane.tenants t ON t.id = q.tenant_id

-- part: queue
{any}
WHERE t.name = :tenant

-- name: get
{queue} AND q.name = :name;

-- name: list
{queue} ORDER BY q.created_at DESC, q.id DESC;

-- name: all
{any} ORDER BY q.created_at DESC, q.id DESC;

-- name: lock
{queue} AND q.name = ANY (:names) ORDER BY q.id FOR UPDATE OF q;

-- name: stamp
SELECT (SELECT c.version FROM fairlane.catalogue c), count(*), max(q.id)
FROM fairlane.queues q JOIN fairlane.tenants t ON t.id = q.tenant_id WHERE :tenant::text IS NULL OR t.name = :tenant;

-- name: lock_by_id
SELECT (q.options ->> 'max_size')::bigint FROM fairlane.queues q WHERE q.id = :queue_id FOR UPDATE;

-- name: ensure
SELECT * FROM fairlane.ensure(:tenant, :names, :namespaces, :tasks, :options, :now);

-- name: declared
SELECT d.app, d.options, d.mapped FROM fairlane.declared_queues d WHERE d.tenant = :tenant AND d.name = :name;

-- name: found
{queue} AND q.name = ANY (:names);

-- name: make
-- Nothing is returned if it is there.
INSERT INTO fairlane.queues (tenant_id, name, namespace, task, options, created_at)
SELECT t.id, :name, :namespace, :task, :options, coalesce(:now, clock_timestamp()) FROM fairlane.tenants t WHERE t.name = :tenant
ON CONFLICT (tenant_id, name) DO NOTHING RETURNING id, :tenant::text, name, namespace, task, options, created_at;

-- name: configure
UPDATE fairlane.queues q SET options = :options, namespace = :namespace, task = :task WHERE q.id = :queue_id;

-- name: any_partition
SELECT p.id FROM fairlane.partitions p WHERE p.shard = :shard AND p.queue_id = :queue_id LIMIT 1;

-- name: lock_partitions (lock)
SELECT p.id FROM fairlane.partitions p
WHERE p.shard = :shard AND p.queue_id = ANY (:queue_ids) ORDER BY p.id FOR NO KEY UPDATE;

-- name: lock_cursors (lock)
-- A pop that moves cursors without holding their partitions is over when these locks are had.
SELECT k.partition_id FROM fairlane.cursors k
WHERE k.shard = :shard AND k.partition_id = ANY (ARRAY(
    SELECT p.id FROM fairlane.partitions p WHERE p.shard = :shard AND p.queue_id = ANY (:queue_ids)))
ORDER BY k.partition_id, k.group_id FOR UPDATE;

-- name: wake
SELECT fairlane.wake(:shard, :queue_id, :delay_seconds, :window_seconds, :now);

-- name: drop
SELECT fairlane.drop_queue(:queue_id);

-- name: purges
SELECT p.queue_id FROM fairlane.purges p ORDER BY p.deleted_at;

-- name: purge (steps)
SELECT fairlane.purge(:shard, :queue_id);

-- name: delete_purge
DELETE FROM fairlane.purges p WHERE p.queue_id = :queue_id;

-- name: born (steps)
SELECT :shard::int, b.id, b.queue_id, b.name, q.options ->> 'ordering' = 'unordered'
FROM fairlane.born(:shard, :queue_ids, :names, :make, :now) b
CROSS JOIN LATERAL (SELECT x.options FROM fairlane.queues x WHERE x.id = b.queue_id LIMIT 1) q;

-- name: set_priority
SELECT fairlane.set_priority(:shard, :partition_id, make_interval(secs => :seconds::int), :now);

-- part: partition
SELECT p.shard, p.id, p.queue_id, p.name::text,
       (SELECT q.options ->> 'ordering' = 'unordered' FROM fairlane.queues q WHERE q.id = p.queue_id)
FROM fairlane.partitions p WHERE p.shard = :shard

-- name: partition
{partition} AND p.id = :partition_id AND (:tenant::text IS NULL OR EXISTS (
    SELECT FROM fairlane.queues q JOIN fairlane.tenants t ON t.id = q.tenant_id WHERE q.id = p.queue_id AND t.name = :tenant));

-- name: named
{partition} AND p.queue_id = :queue_id AND p.name = :name;

-- name: depth
SELECT q.depth, (q.options ->> 'max_size')::bigint FROM fairlane.queues q WHERE q.id = :queue_id;

-- name: unfinished (steps)
SELECT fairlane.unfinished(:shard, :queue_id);

-- name: set_depth
UPDATE fairlane.queues q SET depth = :depth WHERE q.id = :queue_id;

-- name: next_version
UPDATE fairlane.catalogue c SET version = c.version + 1 RETURNING c.version;

-- name: changed
INSERT INTO fairlane.catalogue_changes (version, queue_id) VALUES (:version, :queue_id);

-- name: forget_changes
DELETE FROM fairlane.catalogue_changes x WHERE x.version <= :version;

-- name: changes
SELECT c.version, ARRAY(SELECT x.queue_id FROM fairlane.catalogue_changes x WHERE x.version > :since ORDER BY x.version)
FROM fairlane.catalogue c;
