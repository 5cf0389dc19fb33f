-- name: list
select name, quotas, created_at from tenants order by name

-- name: get
select name, quotas, created_at from tenants where name = :name

-- name: make
insert into tenants (name, quotas, created_at) values (:name, :quotas, :now) on conflict do nothing returning id

-- name: limit
update tenants set quotas = :quotas where name = :name returning id

-- name: lock
select id from tenants where name = :name

-- name: queues
select count(*) from queues where tenant_id = (select id from tenants where name = :name)

-- name: forget_shard
delete from effects where tenant = :name;
delete from operations where tenant = :name;
delete from operation_backlogs where tenant = :name

-- name: forget
delete from shadow_copies where source_id in (select id from sources where tenant = :name);
delete from shadow_records where source_id in (select id from sources where tenant = :name);
delete from sources where tenant = :name;
delete from schedules where tenant = :name;
delete from specs where tenant = :name;
delete from declared_queues where tenant = :name;
delete from workers where tenant = :name;
delete from api_keys where tenant = :name;
delete from sessions where tenant = :name;
delete from stream_queries where tenant_id = (select id from tenants where name = :name);
delete from tenants where name = :name

-- name: counts
select (select count(*) from queues q where q.tenant_id = t.id),
    (select count(*) from queues q join groups g on g.queue_id = q.id where q.tenant_id = t.id),
    (select count(*) from schedules s where s.tenant = :name)
from (select (select id from tenants where name = :name) as id) t

-- name: partitions
select count(*) from queues q join partitions p on p.queue_id = q.id
where q.tenant_id = (select id from tenants where name = :name)

-- part: queues
(select q.id from queues q where q.tenant_id = (select id from tenants where name = :name))

-- part: partitions
(select p.id from partitions p where p.queue_id in {queues})

-- name: bytes
select coalesce((select sum(length(s.body)) from segments s where s.partition_id in {partitions}), 0)
    + coalesce((select sum(length(m.body)) from scheduled_segments s join scheduled_messages m on m.id = s.id
                where s.queue_id in {queues}), 0)

-- name: other_bytes
select coalesce((select sum(length(options)) from schedules where tenant = :name), 0)
    + coalesce((select sum(length(facts)) from workers where tenant = :name), 0)
    + coalesce((select sum(length(source) + length(document)) from specs where tenant = :name), 0)
    + coalesce((select sum(length(scopes)) from api_keys where tenant = :name), 0)

-- name: other_bytes_shard
select coalesce((select sum(length(value)) from effects where tenant = :name), 0)
    + coalesce((select sum(length(data) + length(names)) from traces where partition_id in {partitions}), 0)
    + coalesce((select sum(length(result)) from results where partition_id in {partitions}), 0)
    + coalesce((select sum(length(key) + length(value)) from stream_state where partition_id in {partitions}), 0)
    + coalesce((select sum(length(r.key) + length(r.hash)) from sources s join shadow_records r on r.source_id = s.id
                where s.tenant = :name), 0)
    + coalesce((select sum(length(c.data)) from sources s join shadow_copies c on c.source_id = s.id
                where s.tenant = :name), 0)
