-- part: group
select id, queue_id, name, mode, from_at, conflation, look, created_at, seeding > 0 from groups where queue_id = :queue_id

-- name: get
{group} and name = :name

-- name: list
{group} order by name

-- name: everywhere
select g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seeding > 0
from tenants t cross join queues q on q.tenant_id = t.id cross join groups g on g.queue_id = q.id
where t.name = :tenant and g.name = :name

-- name: owned
select q.id from groups g join queues q on q.id = g.queue_id join tenants t on t.id = q.tenant_id
where g.id = :group_id and t.name = :tenant

-- name: queue_of
select queue_id from groups where id = :group_id

-- name: weigh
-- Which groups of a queue count: those of consumers; where messages become commands, not also the one that nobody named; and
-- all of them if that leaves none.
update groups set counts = w.own or not w.any_own
from (
    select x.id, x.own, max(x.own) over () as any_own
    from (
        select o.id, not o.look and not (o.name = '__QUEUE_MODE__' and exists (
            select 1 from groups c where c.queue_id = :queue_id and c.name = '__COMMANDS__')) as own
        from groups o
        where o.queue_id = :queue_id
    ) x
) w
where groups.id = w.id

-- part: redeliveries
(select coalesce(sum(m.upto - m.first_pos), 0) from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id)
    + (select count(*) from failures y
        where y.partition_id = c.partition_id and y.group_id = c.group_id and y.due_at is not null)

-- part: in_flight
iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
        where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > :now)
    + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
        and y.due_at > :now and y.token is not null), 0)

-- part: lane
select 0, p.id, p.name, p.start, p.head, c.committed,
    iif(c.lease is not null and c.ready_at > :now, c.lease_end, null),
    iif(c.lease is not null and c.ready_at > :now, c.ready_at, null),
    nullif(coalesce(c.ready_at, iif(c.claimed > 0, (select min(at) from (
        select min(m.ends_at) as at from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id
        union all
        select min(y.due_at) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id)), null)), :never),
    coalesce(f.attempts, 0), f.error,
    case when c.parked then 'parked' when p.paused_at is not null then 'paused' when c.ready_at = :never then 'blocked' end,
    c.dead, p.last_at, c.expired, {in_flight},
    (select count(*) from skips x
        where c.failing and x.partition_id = p.id and x.group_id in (0, c.group_id) and x.position
            >= iif(c.lease is not null and c.ready_at > :now, max(c.committed, c.lease_end), max(c.committed, c.claimed)))
        + iif(c.claimed > c.committed, c.claimed - c.committed - ({redeliveries}), 0),
    p.open_operations,
    iif(c.committed < p.head, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1), null),
    f.retry_limit

-- part: failed
left join failures f on (c.failing or c.claimed > 0) and f.partition_id = p.id and f.group_id = c.group_id and f.position = c.committed

-- name: lanes
{lane}
from partitions p join cursors c on c.partition_id = p.id and c.group_id = :group_id
{failed}
where p.queue_id = :queue_id and p.name > :after
order by p.name
limit :limit

-- name: urgent
-- Those that have something to read: the stopped ones, then who is ready longest.
{lane}
from (
    select * from (select x.partition_id, 0 as at from cursors x where x.group_id = :group_id and x.ready_at = :never limit :limit)
    union all
    select * from (select x.partition_id, x.ready_at from cursors x
        where x.group_id = :group_id and x.ready_at < :never order by x.ready_at limit :limit)
) u
cross join partitions p on p.id = u.partition_id
cross join cursors c on c.partition_id = p.id and c.group_id = :group_id
{failed}
where p.queue_id = :queue_id
order by u.at, p.name
limit :limit

-- name: lane
{lane}
from partitions p join cursors c on c.partition_id = p.id and c.group_id = :group_id
{failed}
where p.queue_id = :queue_id and p.id = :partition_id

-- name: delete
delete from groups where id = :group_id

-- name: begin_anew
update groups set seeding = 1, from_at = iif(mode = 'new', coalesce(from_at, created_at), from_at) where id = :group_id

-- name: forget
-- All that is known of a group's lanes; how many there were.
delete from failures where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from claims where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from skips where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from results where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from dead_letters where queue_id = :queue_id and group_id = :group_id;
delete from cursors where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
select changes()

-- name: resubscribe
update groups set mode = :mode, from_at = :from_at where id = :group_id returning id

-- name: result
select r.result
from results r join groups g on g.id = r.group_id
where r.partition_id = :partition_id and r.group_id = :group_id and r.position = :position

-- name: results
select g.name, r.result, r.created_at
from partitions p
join groups g on g.queue_id = p.queue_id
join results r on r.partition_id = p.id and r.group_id = g.id and r.position = :position
where p.id = :partition_id
order by g.name

-- name: next_ready
select min(at)
from (
    select min(ready_at) as at from cursors where group_id = :group_id and ready_at < :never
    union all
    select min(due_at) from failures where group_id = :group_id and due_at is not null
    union all
    select min(ends_at) from claims where group_id = :group_id
)
where exists (select 1 from groups where id = :group_id)

-- name: asleep
select max(p.id), json_group_array(p.id) filter (where c.group_id is not null),
    json_group_array(c.group_id) filter (where c.group_id is not null),
    json_group_array(p.queue_id) filter (where c.group_id is not null)
from (select *, max(last_at) over () as latest, :now + 1000000 as ahead
    from (select id, queue_id, head, paused_at, last_at from partitions where id > :after order by id limit :limit)) p
left join cursors c on c.partition_id = p.id and (
    c.ready_at is null and max(c.committed, c.claimed) < p.head
    -- Or stopped, and nobody paused or parked it, nor is its message out of attempts.
    or c.ready_at = :never and not c.parked and p.paused_at is null and not exists (
        select 1 from failures f join queues q on q.id = p.queue_id
        where f.partition_id = p.id and f.group_id = c.group_id and f.position = c.committed
            and f.attempts > coalesce(f.retry_limit, q.options ->> '$.retry_limit') and q.options ->> '$.on_exhausted' <> 'dead_letter')
    -- Or leased or failed while the clock was ahead.
    or c.leased_at > p.ahead
    or exists (select 1 from failures f where f.partition_id = p.id and f.group_id = c.group_id and f.failed_at > p.ahead)
    -- Or made ready then: the latest message shows how far ahead it was. A failure explains a later time.
    or c.lease is null and c.ready_at > p.ahead and c.ready_at <= p.latest and not exists (
        select 1 from failures f where f.partition_id = p.id and f.group_id = c.group_id and f.position = max(c.committed, c.claimed)))

-- name: rouse
-- Each:
update claims set ends_at = min(claims.ends_at, :now + max(claims.ends_at - c.leased_at, 0)) from cursors c
where c.partition_id = :ids and c.group_id = :groups and c.leased_at > :now
    and claims.partition_id = c.partition_id and claims.group_id = c.group_id;
update failures
set due_at = case
        when failures.token is null and failures.failed_at > :now then :now + max(failures.due_at - failures.failed_at, 0)
        when failures.token is not null and c.leased_at > :now then min(failures.due_at, :now + max(failures.due_at - c.leased_at, 0))
        else failures.due_at
    end,
    failed_at = min(failures.failed_at, :now), first_failed_at = min(failures.first_failed_at, :now)
from cursors c
where c.partition_id = :ids and c.group_id = :groups
    and failures.partition_id = c.partition_id and failures.group_id = c.group_id
    and (failures.failed_at > :now or failures.token is not null and c.leased_at > :now);
update cursors
set ready_at = case
        when leased_at <= :now or leased_at is null then :now
        when ready_at < :never then min(ready_at, :now + max(ready_at - leased_at, 0))
        else ready_at
    end,
    leased_at = min(leased_at, :now)
where partition_id = :ids and group_id = :groups
    and (ready_at is null or ready_at = :never or leased_at > :now or lease is null and ready_at > :now)
