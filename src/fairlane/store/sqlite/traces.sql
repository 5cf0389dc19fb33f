-- name: tenant_of
select q.tenant_id from partitions p join queues q on q.id = p.queue_id where p.id = ?

-- name: add
insert or ignore into traces (partition_id, transaction_id, id, created_at, group_name, event_type, data, names)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_name
insert or ignore into trace_names (tenant_id, name, created_at, trace_id, partition_id, transaction_id)
values (?, ?, ?, ?, ?, ?)

-- name: of_message
select t.id, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at
from traces t
join partitions p on p.id = t.partition_id
join queues q on q.id = p.queue_id
where t.partition_id = ? and t.transaction_id = ?
order by t.created_at, t.id
limit ?

-- name: named
select t.id, t.partition_id, t.transaction_id, t.data, t.group_name, t.event_type, t.names, t.created_at
from trace_names n
join tenants o on o.id = n.tenant_id
join partitions p on p.id = n.partition_id
join queues q on q.id = p.queue_id
join traces t on t.partition_id = n.partition_id and t.transaction_id = n.transaction_id and t.id = n.trace_id
where o.name = ? and n.name = ?
order by n.created_at, n.trace_id
limit ? offset ?

-- name: count_named
select count(*)
from trace_names n
join tenants o on o.id = n.tenant_id
join partitions p on p.id = n.partition_id
join queues q on q.id = p.queue_id
where o.name = ? and n.name = ?

-- name: names
select n.name, count(*), count(distinct n.partition_id || ' ' || n.transaction_id), max(n.created_at) as last_at
from trace_names n
join tenants o on o.id = n.tenant_id
join partitions p on p.id = n.partition_id
join queues q on q.id = p.queue_id
where o.name = ?
group by n.name
order by last_at desc, n.name
limit ? offset ?

-- name: count_names
select count(distinct n.name)
from trace_names n
join tenants o on o.id = n.tenant_id
join partitions p on p.id = n.partition_id
join queues q on q.id = p.queue_id
where o.name = ?

-- name: forget_traces
delete from traces where partition_id = ? and transaction_id = ?

-- name: forget_trace_names
delete from trace_names where partition_id = ? and transaction_id = ?
