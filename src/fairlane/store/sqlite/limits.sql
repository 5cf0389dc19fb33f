-- name: held (in held)
select coalesce(sum(n), 0), min(ends_at)
from (
    select k.lease_end - k.committed - iif(k.failing, (select count(*) from skips s
        where s.partition_id = k.partition_id and s.position >= k.committed and s.position < k.lease_end
            and s.group_id in (0, k.group_id)), 0) as n, k.ready_at as ends_at
    from cursors k
    where k.group_id = ?1 and k.ready_at > ?2 and k.ready_at < ?3 and k.lease is not null
    union all
    select upto - first_pos, ends_at from claims where group_id = ?1 and ends_at > ?2
    union all
    select 1, due_at from failures where group_id = ?1 and due_at > ?2 and token is not null
)

-- part: of_key
-- The partitions of a key of an unordered queue, one for each priority.
select p.id from partitions p join groups g on g.queue_id = p.queue_id
where g.id = ?1 and p.name in (?3, ?3 || '!1', ?3 || '!2', ?3 || '!3', ?3 || '!4', ?3 || '!5', ?3 || '!6', ?3 || '!7',
    ?3 || '!8', ?3 || '!9')

-- name: held_of_key (in held_of_key)
select coalesce(sum(n), 0), min(ends_at)
from (
    select upto - first_pos as n, ends_at from claims
    where partition_id in ({of_key}) and group_id = ?1 and ends_at > ?2
    union all
    select 1, due_at from failures
    where partition_id in ({of_key}) and group_id = ?1 and due_at > ?2 and token is not null
)

-- name: full_keys (in full_lanes)
-- Keys of an unordered queue that have reached `max_running_per_key`.
select iif(p.name glob '*![1-9]', substr(p.name, 1, length(p.name) - 2), p.name) as key
from (
    select partition_id, upto - first_pos as n from claims where group_id = ?1 and ends_at > ?2
    union all
    select partition_id, 1 from failures where group_id = ?1 and due_at > ?2 and token is not null
) h
join partitions p on p.id = h.partition_id
group by key
having sum(n) >= ?3

-- name: lanes (in lanes_to_look_at)
-- Lanes that may have something to deliver, longest-ready first. Those of full keys are left out.
with full_lanes as (
    select id from partitions where queue_id = ?3 and name in (
        select f.value || s.value from json_each(?4) f
        join json_each('["", "!1", "!2", "!3", "!4", "!5", "!6", "!7", "!8", "!9"]') s)
)
select p.id, p.name
from (
    select partition_id, min(at) as at
    from (
        select * from (select partition_id, ready_at as at from cursors
            where group_id = ?1 and ready_at <= ?2 and partition_id not in full_lanes
            order by ready_at limit 1000)
        union all
        select * from (select partition_id, due_at from failures
            where group_id = ?1 and due_at <= ?2 and partition_id not in full_lanes
            order by due_at limit 1000)
        union all
        select * from (select partition_id, ends_at from claims
            where group_id = ?1 and ends_at <= ?2 and partition_id not in full_lanes
            order by ends_at limit 1000)
    )
    group by partition_id
) l
join partitions p on p.id = l.partition_id
order by l.at, p.id

-- name: lane (in lanes_to_look_at)
select id, name from partitions where id = ?

-- name: postpone_lane (in pop_keys)
update cursors set ready_at = ?4 where partition_id = ?1 and group_id = ?2 and ready_at <= ?3 and lease is null

-- name: postpone_failures (in pop_keys)
update failures set due_at = ?4 where partition_id = ?1 and group_id = ?2 and due_at <= ?3 and token is null

-- name: started (in allowance)
select at, n from starts where group_id = ? and key = ? and at > ? order by at

-- name: start (in pop_limited)
insert into starts (group_id, key, at, n) values (?, ?, ?, ?) on conflict do update set n = n + excluded.n

-- name: starts_ahead (in correct_starts)
select key, n from starts where group_id = ? and at > ?

-- name: forget_starts_ahead (in correct_starts)
delete from starts where group_id = ? and at > ?

-- name: forget_starts (in pop_limited)
delete from starts where group_id = ? and at <= ?

-- name: options (in allowance)
select q.options from groups g join queues q on q.id = g.queue_id where g.id = ?
