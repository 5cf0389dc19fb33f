-- Several statements count rows of one kind for each queue or partition; Python puts them together, so that a large
-- table is never multiplied by another.

-- name: queues_there
select q.id from queues q where q.id in (select value from json_each(?))

-- name: partitions_there
select p.id, p.name, p.start, p.head, p.created_at, p.last_at,
    iif(p.start < p.head, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= p.start order by s.first_pos desc limit 1), null)
from partitions p join queues q on q.id = p.queue_id
where p.queue_id = ? and p.name > ?
order by p.name
limit ?

-- name: logs_of_queues
select x.queue_id, count(*), sum(x.head - x.start), sum(x.head - x.done), sum(x.leased),
    max(iif(x.head > 0, x.last_at, null))
from (
    select p.queue_id, p.start, p.head, p.last_at, coalesce((select min(max(k.committed, k.claimed)) from counting k where k.partition_id = p.id), p.start) as done,
        coalesce(max(iif(c.lease is not null and c.ready_at > ?1, c.lease_end - c.committed, iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
            where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > ?1)
        + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
            and y.due_at > ?1 and y.token is not null), 0))), 0) as leased
    from partitions p left join cursors c on c.partition_id = p.id
    where p.queue_id in (select value from json_each(?2))
    group by p.id
) x
group by x.queue_id

-- name: logs_of_partitions
select p.id, 1, p.head - p.start, p.head - coalesce((select min(max(k.committed, k.claimed)) from counting k where k.partition_id = p.id), p.start),
    coalesce(max(iif(c.lease is not null and c.ready_at > ?1, c.lease_end - c.committed, iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
            where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > ?1)
        + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
            and y.due_at > ?1 and y.token is not null), 0))), 0), null
from json_each(?2) j
cross join partitions p on p.id = j.value
left join cursors c on c.partition_id = p.id
group by p.id

-- name: holes_of_queues
select p.queue_id, count(*), sum(s.position >= coalesce(
    (select min(max(c.committed, c.claimed)) from counting c where c.partition_id = p.id), p.start))
from skips s cross join partitions p
where s.group_id = 0 and p.id = s.partition_id and s.position >= p.start
    and p.queue_id in (select value from json_each(?1))
group by p.queue_id

-- name: holes_of_partitions
select p.id, count(*), sum(s.position >= coalesce(
    (select min(max(c.committed, c.claimed)) from counting c where c.partition_id = p.id), p.start))
from json_each(?1) j
cross join partitions p on p.id = j.value
cross join skips s on s.partition_id = p.id
where s.group_id = 0 and s.position >= p.start
group by p.id

-- name: failures_of_queues
select p.queue_id, count(*)
from failures f cross join partitions p
where p.id = f.partition_id and p.queue_id in (select value from json_each(?1))
group by p.queue_id

-- name: failures_of_partitions
select f.partition_id, count(*)
from json_each(?1) j cross join failures f on f.partition_id = j.value
group by f.partition_id

-- name: dead_of_queues
select d.queue_id, count(*)
from json_each(?1) j cross join dead_letters d on d.queue_id = j.value
where d.replayed_at is null
group by d.queue_id

-- name: dead_of_partitions
select d.partition_id, count(*)
from json_each(?1) j cross join dead_letters d on d.partition_id = j.value
where d.replayed_at is null
group by d.partition_id

-- name: groups
select g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seeding,
    count(c.partition_id), coalesce(sum(p.head > c.committed), 0), coalesce(sum(p.head - c.committed - iif(c.claimed > c.committed, c.claimed - c.committed - ((select coalesce(sum(m.upto - m.first_pos), 0) from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id)
            + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
                and y.due_at is not null)), 0)), 0),
    min(iif(p.head > c.committed, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1), null)),
    coalesce(sum(c.committed), 0),
    coalesce(sum(c.lease is not null and c.ready_at > ?1 or iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
            where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > ?1)
        + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
            and y.due_at > ?1 and y.token is not null), 0) > 0), 0),
    coalesce(sum(iif(c.lease is not null and c.ready_at > ?1, c.lease_end - c.committed, iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
            where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > ?1)
        + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
            and y.due_at > ?1 and y.token is not null), 0))), 0),
    coalesce(sum(c.dead), 0)
from groups g
left join partitions p on p.queue_id = g.queue_id
left join cursors c on c.partition_id = p.id and c.group_id = g.id
where g.queue_id in (select value from json_each(?2))
group by g.id

-- name: skips_of_groups
select c.group_id, count(*)
from skips s
cross join cursors c
cross join partitions p
where c.partition_id = s.partition_id and max(c.committed, c.claimed) <= s.position and s.group_id in (0, c.group_id)
    and p.id = s.partition_id and p.queue_id in (select value from json_each(?))
group by c.group_id

-- name: lagging
select x.queue_id, x.group_name, x.id, x.name, x.lag, x.oldest_at, x.lease_ends_at
from (
    select p.queue_id, g.name as group_name, p.id, p.name, p.head - c.committed - iif(c.claimed > c.committed, c.claimed - c.committed - ((select coalesce(sum(m.upto - m.first_pos), 0) from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id)
            + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
                and y.due_at is not null)), 0)
            - (select count(*) from skips s
                where c.failing and s.partition_id = p.id and s.position >= max(c.committed, c.claimed) and s.group_id in (0, g.id)) as lag,
        (select s.created_at from segments s
            where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1) as oldest_at,
        iif(c.lease is not null and c.ready_at > ?1, c.ready_at, null) as lease_ends_at
    from groups g
    join partitions p on p.queue_id = g.queue_id
    join cursors c on c.partition_id = p.id and c.group_id = g.id
    where g.queue_id in (select value from json_each(?2)) and p.head > c.committed
) x
where x.oldest_at < ?3
order by x.oldest_at, x.name, x.group_name
limit ?4

-- name: leases
select g.queue_id, g.name, c.partition_id, p.name, c.group_id, c.lease, c.lease_start, c.lease_end, c.committed,
    c.leased_at, c.ready_at
from json_each(?1) j
cross join groups g on g.queue_id = j.value and (?2 is null or g.name = ?2)
cross join cursors c on c.group_id = g.id and c.ready_at > ?3 and c.ready_at < ?4 and c.lease is not null
join partitions p on p.id = c.partition_id
order by c.ready_at, c.partition_id, c.group_id
limit ?5

-- name: standings
select c.partition_id, g.name, c.committed,
    iif(c.lease is not null and c.ready_at > ?1, c.lease_end, null),
    iif(c.lease is not null and c.ready_at > ?1, c.ready_at, null),
    (select json_group_array(x.position) from skips x
        where c.failing and x.partition_id = c.partition_id and x.position >= c.committed and x.group_id = c.group_id)
from json_each(?2) j
cross join cursors c on c.partition_id = j.value
join groups g on g.id = c.group_id
order by c.partition_id, g.name

-- name: dead_among
select distinct d.partition_id, d.position
from json_each(?) j cross join dead_letters d
where d.partition_id = j.value ->> '$[0]' and d.position = j.value ->> '$[1]'
