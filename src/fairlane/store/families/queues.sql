-- name: tenant_id
SELECT t.id FROM fairlane.tenants t WHERE t.name = :tenant

-- part: any
SELECT q.id, t.name AS tenant, q.name, q.namespace, q.task, q.options, q.created_at
FROM fairlane.queues q JOIN fairlane.tenants t ON t.id = q.tenant_id

-- part: queue
{any}
WHERE t.name = :tenant

-- name: get
{queue} AND q.name = :name

-- name: all
{queue} ORDER BY q.created_at DESC, q.id DESC

-- name: of_all_tenants
{any} ORDER BY q.created_at DESC, q.id DESC

-- name: lock
{queue} AND q.name = ANY (:names) ORDER BY q.id FOR UPDATE OF q

-- name: stamp (postgres)
SELECT (SELECT c.version FROM fairlane.catalogue c), count(*), max(q.id)
FROM fairlane.queues q JOIN fairlane.tenants t ON t.id = q.tenant_id WHERE :tenant::text IS NULL OR t.name = :tenant

-- name: stamp (sqlite)
select coalesce((select seq from sqlite_sequence where name = 'catalogue_changes'), 0), count(*), max(q.id)
from queues q join tenants t on t.id = q.tenant_id
where :tenant is null or t.name = :tenant

-- name: lock_by_id
SELECT (q.options ->> 'max_size')::bigint FROM fairlane.queues q WHERE q.id = :queue_id FOR UPDATE

-- name: ensure (postgres)
SELECT * FROM fairlane.ensure(:tenant, :names, :namespaces, :tasks, :options, :now)

-- part: named
{queue} AND q.name = ANY (:names)

-- name: ensure (sqlite)
-- A queue that a spec in force declares gets the options of the spec, and the group of commands if it is mapped.
insert into queues (tenant_id, name, namespace, task, options, created_at)
select t.id, n.value, :namespaces ->> n.key, :tasks ->> n.key, coalesce(d.options, :options), :now
from json_each(:names) n join tenants t on t.name = :tenant
    left join declared_queues d on d.tenant = :tenant and d.name = n.value
where true order by n.key
on conflict do nothing;
insert into groups (queue_id, name, mode, created_at)
select q.id, '__COMMANDS__', 'all', :now
from json_each(:names) n join declared_queues d on d.tenant = :tenant and d.name = n.value and d.mapped
    join tenants t on t.name = :tenant join queues q on q.tenant_id = t.id and q.name = d.name
where not exists (select 1 from partitions p where p.queue_id = q.id)
on conflict do nothing;
{named}

-- name: declared
SELECT d.app, d.options, d.mapped FROM fairlane.declared_queues d WHERE d.tenant = :tenant AND d.name = :name

-- name: found
{named}

-- name: make (postgres)
-- Returns nothing if the queue exists.
WITH t AS (SELECT x.id, x.name FROM fairlane.tenants x WHERE x.name = :tenant),
     q AS (INSERT INTO fairlane.queues (id, tenant_id, name, namespace, task, options, created_at) OVERRIDING SYSTEM VALUE
           SELECT fairlane.new_id(nextval('fairlane.queues_id_seq')), t.id, :name, :namespace, :task, :options,
                  coalesce(:now, clock_timestamp()) FROM t
           ON CONFLICT (tenant_id, name) DO NOTHING RETURNING id, name, namespace, task, options, created_at)
SELECT q.id, t.name, q.name, q.namespace, q.task, q.options, q.created_at FROM q CROSS JOIN t

-- name: make (sqlite)
insert into queues (tenant_id, name, namespace, task, options, created_at)
select t.id, :name, :namespace, :task, :options, :now from tenants t where t.name = :tenant
on conflict (tenant_id, name) do nothing returning id, :tenant, name, namespace, task, options, created_at

-- name: configure
UPDATE fairlane.queues AS q SET options = :options, namespace = :namespace, task = :task WHERE q.id = :queue_id

-- name: any_partition
SELECT p.id FROM fairlane.partitions p WHERE p.queue_id = :queue_id LIMIT 1

-- name: lock_partitions (postgres, lock)
SELECT p.id FROM fairlane.partitions p
WHERE p.queue_id = ANY (:queue_ids) ORDER BY p.id FOR NO KEY UPDATE

-- name: lock_cursors (postgres, lock)
-- These locks wait for pops, which move cursors without locking their partitions.
SELECT k.partition_id FROM fairlane.cursors k
WHERE k.partition_id = ANY (ARRAY(
    SELECT p.id FROM fairlane.partitions p WHERE p.queue_id = ANY (:queue_ids)))
ORDER BY k.partition_id, k.group_id FOR UPDATE

-- name: wake (postgres)
SELECT fairlane.wake(:queue_id, :delay_seconds, :window_seconds, :now)

-- name: wake (sqlite)
-- Wakes stopped lanes, and lanes that may sleep because of the queue's previous delay and window. The next pop decides by the
-- current options. A lane that sleeps longer was put off by a failure.
update cursors set ready_at = :now
where ready_at > :now and lease is null
    and partition_id in (select id from partitions where queue_id = :queue_id)
    and (ready_at = :never
        or ready_at <= :window_seconds * 1000000 + (select p.last_at from partitions p where p.id = partition_id)
        or ready_at <= :delay_seconds * 1000000 + (select s.created_at from segments s
            where s.partition_id = cursors.partition_id and s.first_pos <= committed order by s.first_pos desc limit 1))

-- name: drop (postgres)
SELECT fairlane.drop_queue(:queue_id)

-- name: drop (sqlite)
delete from queues where id = :queue_id;
delete from starts where group_id in (select id from groups where queue_id = :queue_id);
delete from groups where queue_id = :queue_id;
delete from data_keys where queue_id = :queue_id;
insert into purges (queue_id) values (:queue_id)

-- name: purges (postgres)
SELECT p.queue_id FROM fairlane.purges p ORDER BY p.deleted_at

-- name: purges (sqlite)
select queue_id from purges

-- name: purge (postgres, steps)
SELECT fairlane.purge(:queue_id)

-- name: delete_purge
-- Partitions are left if the queue was deleted or moved again meanwhile.
DELETE FROM fairlane.purges AS p
WHERE p.queue_id = :queue_id AND NOT EXISTS (SELECT 1 FROM fairlane.partitions x WHERE x.queue_id = :queue_id)

-- name: ensure_partitions (postgres, steps)
SELECT b.id, b.queue_id, b.name, q.options ->> 'ordering' = 'unordered'
FROM fairlane.ensure_partitions(:queue_ids, :names, :make, :now) b
CROSS JOIN LATERAL (SELECT x.options FROM fairlane.queues x WHERE x.id = b.queue_id LIMIT 1) q

-- name: set_priority (postgres)
SELECT fairlane.set_priority(:partition_id, make_interval(secs => :seconds::int), :now)

-- name: set_priority (sqlite)
update cursors set ready_at = ready_at + p.priority_lead - :seconds * 1000000
from partitions p
where p.id = :partition_id and p.priority_lead <> :seconds * 1000000 and cursors.partition_id = p.id and lease is null
    and ready_at <= min(:now, :now - p.priority_lead + :seconds * 1000000);
update partitions set priority_lead = :seconds * 1000000 where id = :partition_id returning id

-- part: partition
SELECT p.id, p.queue_id, p.name::text, q.options ->> 'ordering' = 'unordered'
FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id

-- name: partition
{partition}
WHERE p.id = :partition_id AND (:tenant::text IS NULL OR q.tenant_id = (SELECT t.id FROM fairlane.tenants t WHERE t.name = :tenant))

-- name: named
{partition} WHERE p.queue_id = :queue_id AND p.name = :name

-- name: depth
SELECT q.depth, (q.options ->> 'max_size')::bigint FROM fairlane.queues q WHERE q.id = :queue_id

-- name: unfinished (postgres, steps)
SELECT fairlane.count_unfinished(:queue_id)

-- name: set_depth
UPDATE fairlane.queues AS q SET depth = :depth WHERE q.id = :queue_id

-- name: next_version (postgres)
UPDATE fairlane.catalogue c SET version = c.version + 1 RETURNING c.version

-- name: next_version (sqlite)
select coalesce((select seq from sqlite_sequence where name = 'catalogue_changes'), 0) + 1

-- name: changed
INSERT INTO fairlane.catalogue_changes (version, queue_id) VALUES (:version, :queue_id)

-- name: forget_changes
DELETE FROM fairlane.catalogue_changes AS x WHERE x.version <= :version

-- name: changes (postgres)
SELECT c.version, ARRAY(SELECT x.queue_id FROM fairlane.catalogue_changes x WHERE x.version > :since ORDER BY x.version)
FROM fairlane.catalogue c

-- name: changes (sqlite)
select coalesce((select seq from sqlite_sequence where name = 'catalogue_changes'), 0),
    (select json_group_array(queue_id) from (select queue_id from catalogue_changes where version > :since order by version))
