-- name: tenant_id
SELECT t.id FROM fairlane.tenants t WHERE t.name = $1;

-- name: get
SELECT q.id, t.name AS tenant, q.name, q.namespace, q.task, q.options, q.created_at
FROM fairlane.queues q JOIN fairlane.tenants t ON t.id = q.tenant_id
WHERE t.name = $1 AND q.name = $2;

-- name: list
SELECT q.id, t.name AS tenant, q.name, q.namespace, q.task, q.options, q.created_at
FROM fairlane.queues q JOIN fairlane.tenants t ON t.id = q.tenant_id
WHERE t.name = $1 ORDER BY q.created_at DESC, q.id DESC;

-- name: ensure (steps)
SELECT * FROM fairlane.ensure($1, $2, $3, $4, $5, $6, $7);

-- name: make
-- Nothing is returned if it is there.
INSERT INTO fairlane.queues (tenant_id, name, namespace, task, options, created_at)
SELECT t.id, $2, $3, $4, $5, coalesce($6, clock_timestamp()) FROM fairlane.tenants t WHERE t.name = $1
ON CONFLICT (tenant_id, name) DO NOTHING RETURNING id;

-- name: lock (lock)
SELECT q.id, q.name, q.namespace, q.task, q.options
FROM fairlane.queues q JOIN fairlane.tenants t ON t.id = q.tenant_id
WHERE t.name = $1 AND q.name = ANY ($2) ORDER BY q.id FOR UPDATE OF q;

-- name: set_priority
SELECT fairlane.set_priority($1, $2, make_interval(secs => $3::int), $4);

-- name: wake
SELECT fairlane.wake($1, $2, $3, $4, $5);

-- name: configure
UPDATE fairlane.queues q SET options = $2, namespace = $3, task = $4 WHERE q.id = $1;

-- name: lock_partitions (lock)
SELECT p.id FROM fairlane.partitions p WHERE p.shard = $1 AND p.queue_id = ANY ($2) ORDER BY p.id FOR NO KEY UPDATE;

-- name: lock_cursors (lock)
-- A pop that moves cursors without holding their partitions is over when these locks are had.
SELECT k.partition_id FROM fairlane.cursors k
WHERE k.shard = $1 AND k.partition_id = ANY ($2) ORDER BY k.partition_id, k.group_id FOR UPDATE;

-- name: lock_scheduled (lock)
-- Who appends what is due holds segments before queues and partitions.
SELECT b.id FROM fairlane.scheduled_segments b WHERE b.shard = $1 AND b.partition_id = ANY ($2) ORDER BY b.id FOR UPDATE;

-- name: unfinished
SELECT fairlane.unfinished($1, $2);

-- name: set_depth
UPDATE fairlane.queues q SET depth = $2 WHERE q.id = $1;

-- name: depth (in options_and_depth)
SELECT q.depth, (q.options ->> 'max_size')::bigint AS max_size FROM fairlane.queues q WHERE q.id = $1;

-- name: delete
DELETE FROM fairlane.queues q WHERE q.id = $1;

-- name: delete_data_keys
DELETE FROM fairlane.data_keys k WHERE k.queue_id = $1;

-- name: delete_groups
DELETE FROM fairlane.groups g WHERE g.queue_id = $1;

-- name: insert_purge
INSERT INTO fairlane.purges VALUES ($1, clock_timestamp());

-- name: purges
SELECT p.queue_id FROM fairlane.purges p ORDER BY p.deleted_at;

-- name: partitions_to_purge
SELECT p.id FROM fairlane.partitions p WHERE p.shard = $1 AND p.queue_id = $2 ORDER BY p.id LIMIT $3;

-- name: lock_to_purge (lock)
SELECT p.id FROM fairlane.partitions p WHERE p.shard = $1 AND p.id = ANY ($2) ORDER BY p.id FOR UPDATE;

-- name: any_partition
SELECT p.id FROM fairlane.partitions p WHERE p.shard = $1 AND p.queue_id = $2 LIMIT 1;

-- name: purge_segments
DELETE FROM fairlane.segments x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_message_keys
DELETE FROM fairlane.message_keys x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_deleted_ids
DELETE FROM fairlane.deleted_ids x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_cursors
DELETE FROM fairlane.cursors x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_claims
DELETE FROM fairlane.claims x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_failures
DELETE FROM fairlane.failures x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_dead_letters
DELETE FROM fairlane.dead_letters x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_results
DELETE FROM fairlane.results x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_skips
DELETE FROM fairlane.skips x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_scheduled (in purge_scheduled_segments)
SELECT fairlane.clear_scheduled($1, $2);

-- name: purge_traced
DELETE FROM fairlane.traced x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_traces
DELETE FROM fairlane.traces x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_trace_names
DELETE FROM fairlane.trace_names x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_stream_state
DELETE FROM fairlane.stream_state x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_expiries
DELETE FROM fairlane.expiries x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_trims
DELETE FROM fairlane.trims x WHERE x.shard = $1 AND x.partition_id = ANY ($2);

-- name: purge_partitions
DELETE FROM fairlane.partitions x WHERE x.shard = $1 AND x.id = ANY ($2);

-- name: delete_purge
DELETE FROM fairlane.purges p WHERE p.queue_id = $1;

-- name: born (steps)
SELECT b.id, b.queue_id, b.name, q.options ->> 'ordering' = 'unordered' AS unordered
FROM fairlane.born($1, $2, $3, $4, $5) b CROSS JOIN LATERAL (SELECT x.options FROM fairlane.queues x WHERE x.id = b.queue_id LIMIT 1) q;

-- name: partition
SELECT p.shard, p.id, p.queue_id, p.name::text,
       (SELECT q.options ->> 'ordering' = 'unordered' FROM fairlane.queues q WHERE q.id = p.queue_id) AS unordered
FROM fairlane.partitions p WHERE p.shard = $1 AND p.id = $2;

-- name: named
SELECT p.id, (SELECT q.options ->> 'ordering' = 'unordered' FROM fairlane.queues q WHERE q.id = p.queue_id) AS unordered
FROM fairlane.partitions p WHERE p.shard = $1 AND p.queue_id = $2 AND p.name = $3;

-- name: partitions
SELECT p.shard, p.id, p.name::text, p.start, p.head, p.last_at, p.created_at FROM fairlane.partitions p
WHERE p.shard = ANY ($1) AND p.queue_id = $2 AND p.name > $3 ORDER BY p.name LIMIT $4;

-- name: next_version (only here: SQLite numbers the rows of catalogue_changes itself)
UPDATE fairlane.catalogue c SET version = c.version + 1 RETURNING c.version;

-- name: changed
INSERT INTO fairlane.catalogue_changes (version, queue_id) VALUES ($1, $2);

-- name: forget_changes
DELETE FROM fairlane.catalogue_changes x WHERE x.version <= $1;

-- name: version
SELECT c.version, ARRAY(SELECT x.queue_id FROM fairlane.catalogue_changes x WHERE x.version > $1 ORDER BY x.version) AS queue_ids
FROM fairlane.catalogue c;
