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

-- name: started (in allowance)
select at, n from starts where group_id = ? and at > ? order by at

-- name: start (in pop_limited)
insert into starts (group_id, at, n) values (?, ?, ?) on conflict do update set n = n + excluded.n

-- name: forget_starts (in pop_limited)
delete from starts where group_id = ? and at <= ?

-- name: options (in allowance)
select q.options from groups g join queues q on q.id = g.queue_id where g.id = ?
