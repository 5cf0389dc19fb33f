-- name: get
select id, queue_id, name, mode, from_at, conflation, look, created_at, seeding
from groups
where queue_id = ? and name = ?

-- name: by_id (in queue_of)
select id, queue_id, name, mode, from_at, conflation, look, created_at, seeding from groups where id = ?

-- name: list
select id, queue_id, name, mode, from_at, conflation, look, created_at, seeding
from groups
where queue_id = ?
order by name

-- name: seeding
select id, queue_id, name, mode, from_at, conflation, look, created_at, seeding
from groups
where queue_id = ? and seeding > 0

-- name: make
insert into groups (queue_id, name, mode, from_at, conflation, look, created_at, seeding)
values (?, ?, ?, ?, ?, ?, ?, 1)
returning id, queue_id, name, mode, from_at, conflation, look, created_at, seeding

-- name: consumed
update groups set look = 0 where id = ?

-- name: weigh
-- Which groups of a queue count: those of consumers; where messages become commands, not also the one that nobody named; and
-- all of them if that leaves none.
update groups set counts = w.own or not w.any_own
from (
    select x.id, x.own, max(x.own) over () as any_own
    from (
        select o.id, not o.look and not (o.name = '__QUEUE_MODE__' and exists (
            select 1 from groups c where c.queue_id = ?1 and c.name = '__COMMANDS__')) as own
        from groups o
        where o.queue_id = ?1
    ) x
) w
where groups.id = w.id

-- name: set_seeding
update groups set seeding = ? where id = ?

-- name: partitions_from (in seed)
select id, start, head, last_at from partitions where queue_id = ? and id >= ? order by id limit ?

-- name: partition_of_queue (in seek)
select id, start, head, last_at from partitions where queue_id = ? and id = ?

-- name: insert_cursor (in seed)
insert or ignore into cursors (partition_id, group_id, committed, ready_at, failing)
values (?1, ?2, ?3, ?4 - (select priority_lead from partitions where id = ?1), exists (select 1 from skips where partition_id = ?1 and position >= ?3 and group_id = 0))

-- name: lanes
select p.id, p.name, p.start, p.head, c.committed, coalesce(c.ready_at, iif(c.claimed > 0, (select min(at) from (
        select min(m.ends_at) as at from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id
        union all
        select min(y.due_at) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id)), null)),
    c.lease, c.lease_end, c.dead, c.expired, c.parked, p.paused_at, p.last_at, p.open_operations, f.attempts, f.error,
    (select count(*) from skips x
        where c.failing and x.partition_id = p.id and x.group_id in (0, g.id) and x.position
            >= iif(c.lease is not null and c.ready_at > ?1, max(c.committed, c.lease_end), max(c.committed, c.claimed)))
        + iif(c.claimed > c.committed, c.claimed - c.committed - ((select coalesce(sum(m.upto - m.first_pos), 0) from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id)
            + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
                and y.due_at is not null)), 0),
    iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
            where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > ?1)
        + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
            and y.due_at > ?1 and y.token is not null), 0),
    iif(c.committed < p.head, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1), null)
from groups g
join partitions p on p.queue_id = g.queue_id
join cursors c on c.partition_id = p.id and c.group_id = g.id
left join failures f on (c.failing or c.claimed > 0) and f.partition_id = p.id and f.group_id = g.id and f.position = c.committed
where g.id = ?2 and p.name > ?3
order by p.name
limit ?4

-- name: lane (in lanes)
select p.id, p.name, p.start, p.head, c.committed, coalesce(c.ready_at, iif(c.claimed > 0, (select min(at) from (
        select min(m.ends_at) as at from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id
        union all
        select min(y.due_at) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id)), null)),
    c.lease, c.lease_end, c.dead, c.expired, c.parked, p.paused_at, p.last_at, p.open_operations, f.attempts, f.error,
    (select count(*) from skips x
        where c.failing and x.partition_id = p.id and x.group_id in (0, g.id) and x.position
            >= iif(c.lease is not null and c.ready_at > ?1, max(c.committed, c.lease_end), max(c.committed, c.claimed)))
        + iif(c.claimed > c.committed, c.claimed - c.committed - ((select coalesce(sum(m.upto - m.first_pos), 0) from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id)
            + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
                and y.due_at is not null)), 0),
    iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
            where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > ?1)
        + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
            and y.due_at > ?1 and y.token is not null), 0),
    iif(c.committed < p.head, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1), null)
from groups g
join cursors c on c.group_id = g.id
join partitions p on p.id = c.partition_id
left join failures f on (c.failing or c.claimed > 0) and f.partition_id = p.id and f.group_id = g.id and f.position = c.committed
where g.id = ?2 and c.partition_id = ?3

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

-- name: delete
delete from groups where id = ?

-- name: begin_anew
update groups set seeding = 1, from_at = iif(mode = 'new', coalesce(from_at, created_at), from_at) where id = ?

-- name: resubscribe
update groups set mode = ?, from_at = ? where id = ?

-- name: delete_cursors
delete from cursors where group_id = ?1 and partition_id in (select id from partitions where queue_id = ?2)

-- name: delete_claims
delete from claims where group_id = ?1 and partition_id in (select id from partitions where queue_id = ?2)

-- name: delete_failures
delete from failures where group_id = ?1 and partition_id in (select id from partitions where queue_id = ?2)

-- name: delete_skips
delete from skips where group_id = ?1 and partition_id in (select id from partitions where queue_id = ?2)

-- name: delete_dead_letters
delete from dead_letters where queue_id = ?2 and group_id = ?1

-- name: delete_results
delete from results where group_id = ?1 and partition_id in (select id from partitions where queue_id = ?2)

-- name: result
select r.result
from results r join groups g on g.id = r.group_id
where r.partition_id = ? and r.group_id = ? and r.position = ?

-- name: next_ready_at
select ready_at
from cursors
where group_id = ?1 and ready_at < ?2 and exists (select 1 from groups where id = ?1)
order by ready_at
limit 1

-- name: partitions_after (in asleep)
select id from partitions where id > ? order by id limit ?

-- name: asleep
select c.partition_id, c.group_id, p.queue_id
from partitions p cross join cursors c on c.partition_id = p.id
where p.id > ?1 and p.id <= ?2 and (
    c.ready_at is null and max(c.committed, c.claimed) < p.head
    -- Or stopped, and nobody paused or parked it, nor is its message out of attempts.
    or c.ready_at = ?3 and not c.parked and p.paused_at is null and not exists (
        select 1 from failures f join queues q on q.id = p.queue_id
        where f.partition_id = p.id and f.group_id = c.group_id and f.position = c.committed
            and f.attempts > q.options ->> '$.retry_limit' and q.options ->> '$.on_exhausted' <> 'dead_letter'))

-- name: rouse
update cursors set ready_at = ?1 where partition_id = ?2 and group_id = ?3 and (ready_at is null or ready_at = ?4)
