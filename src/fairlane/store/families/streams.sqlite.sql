-- part: query
select q.id, q.name, q.source_queue, q.sink_queue, q.config_hash
from stream_queries q join tenants t on t.id = q.tenant_id
where t.name = :tenant

-- name: get
{query} and q.id = :id

-- name: lock
{query} and q.name = :name

-- name: insert
insert into stream_queries (id, tenant_id, name, source_queue, sink_queue, config_hash, updated_at)
select :id, t.id, :name, :source_queue, :sink_queue, :config_hash, :now from tenants t where t.name = :tenant
on conflict do nothing returning id

-- name: renew
update stream_queries
set source_queue = :source_queue, sink_queue = :sink_queue, config_hash = :config_hash, updated_at = :now where id = :id

-- name: drop_state
delete from stream_state where query_id = :query_id

-- name: state
select s.key, s.value, s.updated_at
from stream_state s
where s.partition_id = :partition_id and s.query_id = :query_id and s.key > :after
    and (:keys is null or s.key in (select value from json_each(:keys)))
    and (:prefix = '' or substr(s.key, 1, length(:prefix)) = :prefix)
    and (:ripe_until is null or s.window_end <= :ripe_until)
order by s.key
limit :limit

-- name: share
select 1 from stream_queries where id = :query_id

-- name: partition_there
select 1 from partitions p join queues q on q.id = p.queue_id where p.id = :partition_id

-- name: keys_there
select key from stream_state
where partition_id = :partition_id and query_id = :query_id and key in (select value from json_each(:keys))

-- name: leased
-- Whether a consumer of a group holds a partition.
select 1
from partitions p
join groups g on g.queue_id = p.queue_id and g.name = :group
join cursors c on c.partition_id = p.id and c.group_id = g.id
where p.id = :partition_id and (
    (c.lease is not null and c.ready_at > :now)
    or exists (select 1 from claims m where m.partition_id = p.id and m.group_id = g.id and m.ends_at > :now)
    or exists (select 1 from failures f
               where f.partition_id = p.id and f.group_id = g.id and f.token is not null and f.due_at > :now))

-- name: put_state
-- Each:
insert or replace into stream_state (partition_id, query_id, key, window_end, updated_at, value)
values (:partition_id, :query_id, :keys, :window_ends, :now, :values)

-- name: delete_state
delete from stream_state
where partition_id = :partition_id and query_id = :query_id and key in (select value from json_each(:keys))
