-- part: seen
(:queue_ids is null or q.id in (select value from json_each(:queue_ids)))

-- name: tenant_of
select q.tenant_id from partitions p join queues q on q.id = p.queue_id where p.id = :partition_id and :shard = 0

-- name: add
insert into traces (partition_id, transaction_id, id, created_at, group_name, event_type, data, names)
values (:partition_id, :transaction_id, :id, :now, :group, :event_type, :data, :names)
on conflict do nothing returning created_at

-- name: add_names
insert into trace_names (tenant_id, name, created_at, trace_id, partition_id, transaction_id)
select distinct :tenant_id, n.value, :created_at, :id, :partition_id, :transaction_id from json_each(:names) n

-- name: of_message
-- Rows of a queue that was deleted go in steps: until then the joins leave them out.
select t.id, 0, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at
from traces t
join partitions p on p.id = t.partition_id
join queues q on q.id = p.queue_id
where :shard = 0 and t.partition_id = :partition_id and t.transaction_id = :transaction_id
order by t.created_at, t.id
limit :limit

-- name: named
select t.id, 0, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at
from trace_names n
join tenants o on o.id = n.tenant_id
join partitions p on p.id = n.partition_id
join queues q on q.id = p.queue_id
join traces t on t.partition_id = n.partition_id and t.transaction_id = n.transaction_id and t.id = n.trace_id
where o.name = :tenant and n.name = :name and {seen}
order by n.created_at, n.trace_id
limit :limit offset :offset

-- name: count_named
select count(*)
from trace_names n
join tenants o on o.id = n.tenant_id
join partitions p on p.id = n.partition_id
join queues q on q.id = p.queue_id
where o.name = :tenant and n.name = :name and {seen}

-- name: names
select n.name, count(*), count(distinct n.partition_id || ' ' || n.transaction_id), max(n.created_at) as last_at
from trace_names n
join tenants o on o.id = n.tenant_id
join partitions p on p.id = n.partition_id
join queues q on q.id = p.queue_id
where o.name = :tenant and {seen}
group by n.name
order by last_at desc, n.name
limit :limit offset :offset

-- name: count_names
select count(distinct n.name)
from trace_names n
join tenants o on o.id = n.tenant_id
join partitions p on p.id = n.partition_id
join queues q on q.id = p.queue_id
where o.name = :tenant and {seen}
