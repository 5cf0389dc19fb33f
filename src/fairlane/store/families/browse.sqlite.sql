-- name: active
select 0, p.id, p.queue_id, p.name, p.last_at
from partitions p
where p.queue_id in (select value from json_each(:queue_ids))
    and p.head > p.start
    and p.last_at >= :since
    and (:name is null or p.name = :name)
    and (:before_at is null or (p.last_at, p.id) < (:before_at, :before_id))
order by p.last_at desc, p.id desc
limit :limit

-- part: those
(select p.id from partitions p where p.queue_id = :queue_id and :partition_id in (0, p.id))

-- name: clear
-- :partition_id 0 means all partitions. Answers how many there were.
select coalesce(sum(p.head - p.start
    - (select count(*) from skips s where s.partition_id = p.id and s.group_id = 0 and s.position >= p.start)), 0)
from partitions p
where p.id in {those};
update cursors
set committed = (select p.head from partitions p where p.id = cursors.partition_id), claimed = 0, ready_at = null, lease = null,
    lease_start = null, lease_end = null, leased_at = null, last_lease = null, probe_until = 0, failing = 0
where partition_id in {those};
delete from failures where partition_id in {those};
delete from claims where partition_id in {those};
delete from skips where partition_id in {those};
delete from scheduled_messages where id in (select b.id from scheduled_segments b where b.partition_id in {those});
delete from scheduled_keys where partition_id in {those};
delete from scheduled_segments where partition_id in {those};
insert into trims (partition_id, cleared)
select p.id, p.head from partitions p
where p.id in {those} and (p.start < p.head or exists (select 1 from deleted_ids d where d.partition_id = p.id))
on conflict do update set cleared = excluded.cleared;
update partitions set start = head where id in {those};
-- When nobody uses them any more they go.
insert or ignore into expiries (partition_id, due_at)
select id, max(last_at, created_at) + 30 * 86400 * 1000000 from partitions where id in {those}

-- name: traced
select 0, t.partition_id, t.position, p.queue_id, p.name from traced t cross join partitions p
where t.trace_id = :trace_id and p.id = t.partition_id and t.position >= p.start
    and p.queue_id in (select value from json_each(:queue_ids))
limit :limit
