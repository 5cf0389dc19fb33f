-- name: lane (in pop_unordered)
select c.partition_id, c.group_id, c.committed, c.ready_at, c.lease, c.lease_start, c.lease_end, c.leased_at,
    c.last_lease, c.probe_until, c.failing, c.dead, c.expired, c.parked, p.paused_at, p.head,
    p.queue_id, p.name, p.priority_lead, 0 as open_acks, c.claimed,
    p.start, q.options
from cursors c
cross join partitions p
cross join queues q
where c.partition_id = ? and c.group_id = ? and p.id = c.partition_id and q.id = p.queue_id

-- name: save (in pop_unordered)
update cursors
set claimed = ?3, ready_at = ?4, failing = ?5, dead = ?6, leased_at = ?7, committed = min(?3,
    coalesce((select min(first_pos) from claims where partition_id = ?1 and group_id = ?2), ?3),
    coalesce((select min(position) from failures where partition_id = ?1 and group_id = ?2 and due_at is not null), ?3))
where partition_id = ?1 and group_id = ?2

-- name: save_front (in pop_unordered)
update cursors set claimed = ?3, ready_at = ?4, leased_at = ?5 where partition_id = ?1 and group_id = ?2

-- name: ready (in pop_unordered)
select partition_id, max(again)
from (
    select * from (select partition_id, ready_at as at, 0 as again from cursors where group_id = ?1 and ready_at <= ?2
        order by ready_at limit ?3)
    union all
    select * from (select partition_id, due_at, 1 from failures where group_id = ?1 and due_at <= ?2
        order by due_at limit 1000)
    union all
    select * from (select partition_id, ends_at, 1 from claims where group_id = ?1 and ends_at <= ?2
        order by ends_at limit 1000)
)
group by partition_id
order by min(at), partition_id

-- name: next_at (in pop_unordered)
select min(at)
from (
    select min(ready_at) as at from cursors
    where group_id = ?1 and ready_at > ?3 and ready_at < ?4 and (?2 is null or partition_id = ?2)
    union all
    select min(due_at) from failures where group_id = ?1 and due_at > ?3 and (?2 is null or partition_id = ?2)
    union all
    select min(ends_at) from claims where group_id = ?1 and ends_at > ?3 and (?2 is null or partition_id = ?2)
)

-- name: insert (in pop_unordered)
-- Rows are one value, here and below, so that many need one step.
insert into claims (partition_id, group_id, first_pos, upto, token, ends_at)
select ?1, ?2, value ->> 0, value ->> 1, unhex(value ->> 2), value ->> 3 from json_each(?3)

-- name: delete (in ack_unordered)
delete from claims where partition_id = ? and group_id = ? and first_pos in (select value from json_each(?))

-- name: ran_out (in return_claims)
select token, first_pos, upto from claims where group_id = ?2 and ends_at <= ?3 and partition_id = ?1
union all
select token, position, position + 1 from failures
where group_id = ?2 and due_at <= ?3 and partition_id = ?1 and token is not null
order by 2

-- name: drop_ran_out (in return_claims)
delete from claims where group_id = ?2 and ends_at <= ?3 and partition_id = ?1

-- name: put_back (in return_claims)
insert into failures (partition_id, group_id, position, attempts, error, traceback, first_failed_at, failed_at, due_at, alone,
    retry_limit)
select ?1, ?2, value ->> 0, value ->> 1, value ->> 2, value ->> 3, ?3, ?3, value ->> 4, ?4, value ->> 5
from json_each(?5) where true
on conflict do update set attempts = attempts + excluded.attempts, error = excluded.error, traceback = excluded.traceback,
    first_failed_at = iif(attempts = 0, excluded.first_failed_at, first_failed_at), failed_at = excluded.failed_at,
    due_at = excluded.due_at, token = null, alone = excluded.alone, retry_limit = coalesce(excluded.retry_limit, retry_limit),
    history = iif(attempts > 0, json_insert(iif(json_array_length(history) >= 9, json_remove(history, '$[0]'), history), '$[#]',
        json_object('at', failed_at, 'error', error, 'traceback', traceback)), history)

-- name: due (in pop_unordered)
select position, attempts, alone, retry_limit from failures
where partition_id = ? and group_id = ? and due_at <= ? and token is null
order by position
limit ?

-- name: redeliver (in pop_unordered)
update failures set token = ?, due_at = ? where partition_id = ? and group_id = ? and position = ?

-- name: forget (in ack_unordered)
delete from failures where partition_id = ? and group_id = ? and position in (select value from json_each(?))

-- name: own_skips (in pop_unordered)
select position from skips where partition_id = ? and position >= ? and position < ? and group_id = ?

-- name: skip_ahead (in pop_unordered)
select exists (select 1 from skips where partition_id = ? and position >= ? and group_id in (0, ?))

-- name: claims_of (in ack_unordered)
select first_pos, upto, token, ends_at from claims
where partition_id = ?1 and group_id = ?2
    and (first_pos < ?4 and upto > ?3 or token in (select unhex(value) from json_each(?5)))
order by first_pos

-- name: redeliveries_of (in ack_unordered)
select position, token, due_at, attempts from failures
where partition_id = ?1 and group_id = ?2 and token is not null and token in (select unhex(value) from json_each(?5))
union
select position, token, due_at, attempts from failures
where partition_id = ?1 and group_id = ?2 and position >= ?3 and position < ?4 and due_at is not null

-- name: of_lease (in claimed_lanes)
select partition_id, first_pos, upto, first_pos, ends_at from claims where group_id = ?1 and ends_at > ?2 and token = ?3
union all
select partition_id, position, position + 1, position, due_at from failures
where group_id = ?1 and due_at > ?2 and token = ?3
order by 1, 2

-- name: renew_claims (in renew)
update claims set ends_at = max(ends_at, ?1)
where group_id = ?2 and ends_at > ?3 and token = ?4
returning partition_id, ends_at

-- name: renew_redeliveries (in renew)
update failures set due_at = max(due_at, ?1)
where group_id = ?2 and due_at > ?3 and token = ?4
returning partition_id, due_at

-- name: others (in count_freed)
select max(committed, claimed) from counting where partition_id = ? and group_id <> ?

-- name: others_claims (in count_freed)
select c.first_pos, c.upto from claims c join groups g on g.id = c.group_id
where c.partition_id = ? and c.group_id <> ? and g.counts
union all
select f.position, f.position + 1 from failures f join groups g on g.id = f.group_id
where f.partition_id = ? and f.group_id <> ? and f.due_at is not null and g.counts

-- part: partitions
select p.id, p.queue_id, (select min(max(k.committed, k.claimed)) from counting k where k.partition_id = p.id) as front
from partitions p

-- part: open_below
-- Below the front of every counting group: beyond it everything is open anyway.
join (
    select partition_id, group_id, first_pos, upto from claims
    union all
    select partition_id, group_id, position, position + 1 from failures where due_at is not null
) c on c.partition_id = x.id and c.first_pos < x.front
join groups g on g.id = c.group_id and g.counts
order by x.id, c.first_pos

-- name: open_of_queues (in in_flight)
select x.queue_id, x.id, c.first_pos, min(c.upto, x.front)
from ({partitions} where p.queue_id in (select value from json_each(?1))) x
{open_below}

-- name: open_of_partitions (in in_flight)
select x.id, x.id, c.first_pos, min(c.upto, x.front)
from ({partitions} where p.id in (select value from json_each(?1))) x
{open_below}

-- name: holding (in release)
select group_id, first_pos, upto, token, ends_at from claims where partition_id = ?1 and first_pos <= ?2 and upto > ?2

-- name: groups_of (in watermark)
select group_id from cursors where partition_id = ?
