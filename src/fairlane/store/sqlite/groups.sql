-- name: by_id (in queue_of)
select id, queue_id, name, mode, from_at, conflation, look, created_at, seed_after is not null from groups where id = ?

-- name: queue (in subscribe)
select 1 from queues where id = ?

-- name: mapped (in subscribe)
select 1 from queues q join tenants t on t.id = q.tenant_id join declared_queues d on d.tenant = t.name and d.name = q.name
where q.id = ? and d.mapped

-- name: make (in subscribe)
insert into groups (queue_id, name, mode, from_at, conflation, look, created_at, seed_after) values (?, ?, ?, ?, ?, ?, ?, 0)
returning id

-- name: consumed (in subscribe)
update groups set look = 0 where id = ?

-- name: seeding (in seed_group)
select queue_id, mode, from_at, seed_after from groups where id = ? and seed_after is not null

-- name: set_seeding (in seed_group)
update groups set seed_after = ? where id = ?

-- name: being_seeded (in seed)
select id, mode, from_at from groups where queue_id = ? and seed_after is not null

-- name: partitions_from (in seed)
select id, start, head, last_at from partitions where queue_id = ? and id > ? order by id limit ?

-- name: partition_of_queue (in seek)
select id, start, head, last_at from partitions where queue_id = ? and id = ?

-- name: insert_cursor (in seed)
insert or ignore into cursors (partition_id, group_id, committed, ready_at, failing)
values (?1, ?2, ?3, ?4 - (select priority_lead from partitions where id = ?1), exists (select 1 from skips where partition_id = ?1 and position >= ?3 and group_id = 0))

-- name: lanes_of_queue (in preview_seek)
select p.id, p.start, p.head, c.committed
from partitions p join cursors c on c.partition_id = p.id and c.group_id = ?
where p.queue_id = ? order by p.id limit ?

-- name: seek_cursor (in seek)
update cursors
set committed = ?1, claimed = 0, ready_at = ?2 - (select priority_lead from partitions where id = ?3), lease = null, lease_start = null, lease_end = null, leased_at = null,
    last_lease = null, probe_until = 0,
    failing = exists (select 1 from skips where partition_id = ?3 and position >= ?1 and group_id = 0)
where partition_id = ?3 and group_id = ?4

-- name: forget_failures (in seek)
delete from failures where partition_id = ? and group_id = ?

-- name: forget_claims (in seek)
delete from claims where partition_id = ? and group_id = ?

-- name: forget_skips (in seek)
delete from skips where partition_id = ? and group_id = ?

-- name: next_ready_at (in pop)
select ready_at
from cursors
where group_id = ?1 and ready_at < ?2 and exists (select 1 from groups where id = ?1)
order by ready_at
limit 1

-- name: stopped_lanes (in resume_lanes)
select c.partition_id
from groups g
join partitions p on p.queue_id = g.queue_id
join cursors c on c.partition_id = p.id and c.group_id = g.id
left join failures f on f.partition_id = p.id and f.group_id = g.id and f.position = c.committed
join queues q on q.id = g.queue_id
where g.id = ?1 and ?2 in (0, p.id)
    and (c.parked or c.ready_at = ?3 and f.attempts > coalesce(f.retry_limit, q.options ->> '$.retry_limit'))

-- name: forget_failure (in resume_lanes)
delete from failures where partition_id = ? and group_id = ? and position = ? and due_at is null

-- name: options_and_depth (in depth)
select options, depth from queues where id = ?

-- name: unfinished (in count_unfinished)
-- Includes the messages of open operations, which reserve capacity.
select coalesce(sum(x.head - x.done
    - (select count(*) from skips s where s.partition_id = x.id and s.group_id = 0 and s.position >= x.done)), 0)
    + (select coalesce(sum(messages), 0) from operation_backlogs where queue_id = ?1)
from (
    select p.id, p.head, coalesce((select min(max(c.committed, c.claimed)) from counting c where c.partition_id = p.id), p.start) as done
    from partitions p
    where p.queue_id = ?1
) x

-- name: set_depth (in set_depth)
update queues set depth = ? where id = ?

-- name: any_cancelled (in skip_cancelled)
select exists (select 1 from cancellations)

-- name: copy_cancellations (in skip_cancelled)
insert or ignore into cancellations (partition_id, group_id, position, cancelled_at)
select c.partition_id, k.group_id, c.position, c.cancelled_at
from cancellations c join cursors k on k.partition_id = c.partition_id and k.group_id = ?2
where c.partition_id = ?1 and c.group_id = 0 and c.position >= max(k.committed, k.claimed)

-- name: skip_cancelled (in skip_cancelled)
insert or ignore into skips (partition_id, position, group_id, created_at)
select c.partition_id, c.position, c.group_id, ?3
from cancellations c join cursors k on k.partition_id = c.partition_id and k.group_id = c.group_id
where c.partition_id = ?1 and c.group_id = ?2 and c.position >= max(k.committed, k.claimed)

-- name: mark_skipping (in skip_cancelled)
update cursors set failing = 1
where partition_id = ?1 and group_id = ?2
    and exists (select 1 from skips s where s.partition_id = ?1 and s.position >= cursors.committed and s.group_id = ?2)
