-- name: tenant_id
select id from tenants where name = :tenant

-- part: any
select q.id, t.name, q.name, q.namespace, q.task, q.options, q.created_at
from queues q join tenants t on t.id = q.tenant_id

-- part: queue
{any}
where t.name = :tenant

-- name: get
{queue} and q.name = :name

-- name: list
{queue} order by q.id desc

-- name: all
{any} order by q.id desc

-- name: stamp
select coalesce((select seq from sqlite_sequence where name = 'catalogue_changes'), 0), count(*), max(q.id)
from queues q join tenants t on t.id = q.tenant_id
where :tenant is null or t.name = :tenant

-- name: lock_by_id
select options ->> '$.max_size' from queues where id = :queue_id

-- part: named
{queue} and q.name in (select value from json_each(:names))

-- name: ensure
-- A queue that a spec in force declares gets the options and the group of commands that the spec says.
insert into queues (tenant_id, name, namespace, task, options, created_at)
select t.id, n.value, :namespaces ->> n.key, :tasks ->> n.key, coalesce(d.options, :options), :now
from json_each(:names) n join tenants t on t.name = :tenant
    left join declared_queues d on d.tenant = :tenant and d.name = n.value
where true order by n.key
on conflict do nothing;
insert into groups (queue_id, name, mode, created_at, seeding)
select q.id, '__COMMANDS__', 'all', :now, 0
from json_each(:names) n join declared_queues d on d.tenant = :tenant and d.name = n.value and d.mapped
    join tenants t on t.name = :tenant join queues q on q.tenant_id = t.id and q.name = d.name
where not exists (select 1 from partitions p where p.queue_id = q.id)
on conflict do nothing;
{named}

-- name: declared
select app, options, mapped from declared_queues where tenant = :tenant and name = :name

-- name: found
{named}

-- name: lock
{named} order by q.id

-- name: make
-- Nothing is returned if it is there.
insert into queues (tenant_id, name, namespace, task, options, created_at)
select id, :name, :namespace, :task, :options, :now from tenants where name = :tenant
on conflict do nothing returning id, :tenant, name, namespace, task, options, created_at

-- name: configure
update queues set options = :options, namespace = :namespace, task = :task where id = :queue_id

-- name: any_partition
select 1 from partitions where queue_id = :queue_id limit 1

-- name: wake
-- Stopped lanes, and those that sleep no longer than the delay and window that the queue had so far could let them: the pop that
-- meets them decides by what holds now. Longer sleeps are those that a failure asked for.
update cursors set ready_at = :now
where ready_at > :now and lease is null
    and partition_id in (select id from partitions where queue_id = :queue_id)
    and (ready_at = :never
        or ready_at <= :window_seconds * 1000000 + (select p.last_at from partitions p where p.id = partition_id)
        or ready_at <= :delay_seconds * 1000000 + (select s.created_at from segments s
            where s.partition_id = cursors.partition_id and s.first_pos <= committed order by s.first_pos desc limit 1))

-- name: drop
delete from queues where id = :queue_id;
delete from groups where queue_id = :queue_id;
delete from data_keys where queue_id = :queue_id;
insert into purges (queue_id) values (:queue_id)

-- name: purges
select queue_id from purges

-- name: delete_purge
delete from purges where queue_id = :queue_id

-- name: set_priority
update cursors set ready_at = ready_at + p.priority_lead - :seconds * 1000000
from partitions p
where p.id = :partition_id and p.priority_lead <> :seconds * 1000000 and cursors.partition_id = p.id and lease is null
    and ready_at <= min(:now, :now - p.priority_lead + :seconds * 1000000);
update partitions set priority_lead = :seconds * 1000000 where id = :partition_id returning id

-- part: partition
select 0, p.id, p.queue_id, p.name, q.options ->> '$.ordering' = 'unordered' from partitions p join queues q on q.id = p.queue_id

-- name: partition
{partition} where p.id = :partition_id and (:tenant is null or q.tenant_id = (select id from tenants where name = :tenant))

-- name: named
{partition} where p.queue_id = :queue_id and p.name = :name

-- name: depth
select depth, options ->> '$.max_size' from queues where id = :queue_id

-- name: set_depth
update queues set depth = :depth where id = :queue_id

-- name: next_version
select coalesce((select seq from sqlite_sequence where name = 'catalogue_changes'), 0) + 1

-- name: changed
insert into catalogue_changes (version, queue_id) values (:version, :queue_id)

-- name: forget_changes
delete from catalogue_changes where version <= :version

-- name: changes
select coalesce((select seq from sqlite_sequence where name = 'catalogue_changes'), 0),
    (select json_group_array(queue_id) from (select queue_id from catalogue_changes where version > :since order by version))
