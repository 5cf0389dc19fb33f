-- Several statements count rows of one kind for each queue or partition; Python puts them together, so that a large
-- table is never multiplied by another.

-- part: in_flight
iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
        where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > :now)
    + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
        and y.due_at > :now and y.token is not null), 0)

-- part: redeliveries
(select coalesce(sum(m.upto - m.first_pos), 0) from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id)
    + (select count(*) from failures y
        where y.partition_id = c.partition_id and y.group_id = c.group_id and y.due_at is not null)

-- name: queues_there
select q.id from queues q where q.id in (select value from json_each(:queue_ids))

-- name: partitions_there
select 0, p.id, p.name, p.start, p.head, p.created_at, p.last_at,
    iif(p.start < p.head, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= p.start order by s.first_pos desc limit 1), null)
from partitions p join queues q on q.id = p.queue_id
where p.queue_id = :queue_id and p.name > :after
order by p.name
limit :limit

-- name: oldest
select j.value, (select min((select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= p.start order by s.first_pos desc limit 1))
    from (select * from partitions x where x.queue_id = j.value and x.start < x.head order by x.name limit :partitions) p) as oldest_at
from json_each(:queue_ids) j
where oldest_at is not null

-- part: done
coalesce((select min(max(k.committed, k.claimed)) from counting k where k.partition_id = p.id), p.start)

-- part: open
-- Messages that every group was handed and some group has not finished, each once.
(select coalesce(sum(max(0, o.upto - max(o.first_pos, o.reached))), 0)
from (
    select m.first_pos, min(m.upto, {done}) as upto, coalesce(max(min(m.upto, {done}))
        over (order by m.first_pos rows between unbounded preceding and 1 preceding), 0) as reached
    from (
        select group_id, first_pos, upto from claims where partition_id = p.id
        union all
        select group_id, position, position + 1 from failures where partition_id = p.id and due_at is not null
    ) m
    join groups g on g.id = m.group_id and g.counts
    where m.first_pos < {done}
) o)

-- part: log
p.head - p.start as total, p.head - {done} + iif(max(c.claimed) > 0, {open}, 0) as unfinished,
    coalesce(max(iif(c.lease is not null and c.ready_at > :now, c.lease_end - c.committed, {in_flight})), 0) as leased

-- name: logs_of_queues
select x.queue_id, count(*), sum(x.total), sum(x.unfinished), sum(x.leased), max(iif(x.head > 0, x.last_at, null))
from (
    select p.queue_id, p.head, p.last_at, {log}
    from partitions p left join cursors c on c.partition_id = p.id
    where p.queue_id in (select value from json_each(:ids))
    group by p.id
) x
group by x.queue_id

-- name: logs_of_partitions
select p.id, 1, {log}, null
from json_each(:ids) j
cross join partitions p on p.id = j.value
left join cursors c on c.partition_id = p.id
group by p.id

-- name: holes_of_queues
select p.queue_id, count(*), sum(s.position >= coalesce(
    (select min(max(c.committed, c.claimed)) from counting c where c.partition_id = p.id), p.start))
from skips s cross join partitions p
where s.group_id = 0 and p.id = s.partition_id and s.position >= p.start
    and p.queue_id in (select value from json_each(:ids))
group by p.queue_id

-- name: holes_of_partitions
select p.id, count(*), sum(s.position >= coalesce(
    (select min(max(c.committed, c.claimed)) from counting c where c.partition_id = p.id), p.start))
from json_each(:ids) j
cross join partitions p on p.id = j.value
cross join skips s on s.partition_id = p.id
where s.group_id = 0 and s.position >= p.start
group by p.id

-- name: failures_of_queues
select p.queue_id, count(*)
from failures f cross join partitions p
where p.id = f.partition_id and p.queue_id in (select value from json_each(:ids))
group by p.queue_id

-- name: failures_of_partitions
select f.partition_id, count(*)
from json_each(:ids) j cross join failures f on f.partition_id = j.value
group by f.partition_id

-- name: dead_of_queues
select d.queue_id, count(*)
from json_each(:ids) j cross join dead_letters d on d.queue_id = j.value
where d.replayed_at is null
group by d.queue_id

-- name: dead_of_partitions
select d.partition_id, count(*)
from json_each(:ids) j cross join dead_letters d on d.partition_id = j.value
where d.replayed_at is null
group by d.partition_id

-- name: groups_there
select g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seeding > 0
from groups g where g.queue_id in (select value from json_each(:queue_ids))

-- name: groups
select g.id, count(*), sum(p.head > c.committed),
    sum(p.head - c.committed - iif(c.claimed > c.committed, c.claimed - c.committed - ({redeliveries}), 0)),
    min(iif(p.head > c.committed, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1), null)),
    sum(c.committed), sum(c.lease is not null and c.ready_at > :now or {in_flight} > 0),
    sum(iif(c.lease is not null and c.ready_at > :now, c.lease_end - c.committed, {in_flight})), sum(c.dead),
    sum((c.failing or c.claimed > 0) and exists (select 1 from failures f where f.partition_id = c.partition_id
        and f.group_id = c.group_id and f.attempts > 1 and f.error = 'Partition lease expired')),
    max(c.leased_at)
from groups g
join partitions p on p.queue_id = g.queue_id
join cursors c on c.partition_id = p.id and c.group_id = g.id
where g.queue_id in (select value from json_each(:queue_ids))
group by g.id

-- name: skips_of_groups
select c.group_id, count(*)
from skips s
cross join cursors c
cross join partitions p
where c.partition_id = s.partition_id and max(c.committed, c.claimed) <= s.position and s.group_id in (0, c.group_id)
    and p.id = s.partition_id and p.queue_id in (select value from json_each(:queue_ids))
group by c.group_id

-- name: lagging
select x.queue_id, x.group_name, 0, x.id, x.name, x.lag, x.oldest_at, x.lease_ends_at
from (
    select p.queue_id, g.name as group_name, p.id, p.name, p.head - c.committed - iif(c.claimed > c.committed, c.claimed - c.committed - ({redeliveries}), 0)
            - (select count(*) from skips s
                where c.failing and s.partition_id = p.id and s.position >= max(c.committed, c.claimed) and s.group_id in (0, g.id)) as lag,
        (select s.created_at from segments s
            where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1) as oldest_at,
        iif(c.lease is not null and c.ready_at > :now, c.ready_at, null) as lease_ends_at
    from groups g
    join partitions p on p.queue_id = g.queue_id
    join cursors c on c.partition_id = p.id and c.group_id = g.id
    where g.queue_id in (select value from json_each(:queue_ids)) and p.head > c.committed
) x
where x.oldest_at < :oldest_before
order by x.oldest_at, x.name, x.group_name
limit :limit

-- name: leases
select g.queue_id, g.name, 0, c.partition_id, p.name, c.group_id, c.lease, c.lease_start, c.lease_end, c.committed,
    c.leased_at, c.ready_at
from json_each(:queue_ids) j
cross join groups g on g.queue_id = j.value and (:group is null or g.name = :group)
cross join cursors c on c.group_id = g.id and c.ready_at > :now and c.ready_at < :ends_before and c.lease is not null
join partitions p on p.id = c.partition_id
order by c.ready_at, c.partition_id, c.group_id
limit :limit

-- name: standings
select 0, c.partition_id, g.name, c.committed,
    iif(c.lease is not null and c.ready_at > :now, c.lease_end, null),
    iif(c.lease is not null and c.ready_at > :now, c.ready_at, null),
    (select json_group_array(x.position) from skips x
        where c.failing and x.partition_id = c.partition_id and x.position >= c.committed and x.group_id = c.group_id)
from json_each(:ids) j
cross join cursors c on c.partition_id = j.value
join groups g on g.id = c.group_id
order by c.partition_id, g.name

-- name: dead_among
-- Each:
select distinct 0, d.partition_id, d.position from dead_letters d where d.partition_id = :ids and d.position = :positions

-- name: stopped
select g.queue_id, g.name, p.name, c.parked, f.error, f.failed_at
from json_each(:queue_ids) j
cross join groups g on g.queue_id = j.value
cross join cursors c on c.group_id = g.id and c.ready_at = :never
cross join partitions p on p.id = c.partition_id and p.paused_at is null
left join failures f on f.partition_id = c.partition_id and f.group_id = c.group_id and f.position = c.committed
limit :limit
