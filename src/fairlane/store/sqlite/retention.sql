-- name: looked_at (in expire_messages)
update expiries set due_at = ? where partition_id = ?

-- name: uncovered (in expire_messages)
delete from expiries where partition_id = ?

-- name: next_due (in expire_messages)
select e.partition_id, p.queue_id, p.name, p.start, p.head, max(p.last_at, p.created_at), q.options
from expiries e
left join partitions p on p.id = e.partition_id
left join queues q on q.id = p.queue_id
where e.due_at <= ?
order by e.due_at
limit ?

-- name: open_messages (in open_messages)
select p.head - m.done
    - (select count(*) from skips s where s.partition_id = p.id and s.group_id = 0 and s.position >= m.done)
from partitions p
join (select ifnull(
    (select min(max(c.committed, c.claimed)) from counting c where c.partition_id = ?1),
    (select start from partitions where id = ?1)
) as done) m
where p.id = ?1

-- name: finished_by_all (in expire_messages)
select min(c.committed)
from cursors c
where c.partition_id = ?1
having count(*) = (select count(*) from groups where queue_id = ?2)

-- name: least_leased (in expire_messages)
select min(position)
from (
    select min(committed) as position from cursors where partition_id = ?1 and lease is not null and ready_at > ?2
    union all
    select min(first_pos) from claims where partition_id = ?1 and ends_at > ?2
    union all
    select min(position) from failures where partition_id = ?1 and token is not null and due_at > ?2
)

-- name: holes (in expire_messages)
select count(*) from skips where partition_id = ? and group_id = 0 and position >= ? and position < ?

-- name: forget_failures (in forget_below)
delete from failures where partition_id = ? and position < ?

-- name: forget_skips (in forget_below)
-- Deleted messages stay marked until their segment is gone, because their ids are not remembered.
delete from skips where partition_id = ? and position < ? and group_id <> 0

-- Messages that a lane never delivered expire, and in an unordered queue delivered ones that are still open.

-- name: count_expired (in forget_below)
update cursors
set expired = expired + max(0, ?2 - max(committed, claimed))
    - (select count(*) from skips s where s.partition_id = ?1 and s.group_id in (0, cursors.group_id)
        and s.position >= max(cursors.committed, cursors.claimed) and s.position < ?2)
    + (select ifnull(sum(min(c.upto, ?2) - c.first_pos), 0) from claims c
        where c.partition_id = ?1 and c.group_id = cursors.group_id and c.first_pos < ?2)
    + (select count(*) from failures f where f.partition_id = ?1 and f.group_id = cursors.group_id
        and f.position < ?2 and f.due_at is not null)
where partition_id = ?1 and committed < ?2

-- name: delete_parts (in forget_below)
-- Parts of fan-ins that are open: afterwards their messages look as if they were finished.
update fan_in_parts set status = 'deleted', ended_at = ?3
where partition_id = ?1 and position < ?2 and status is null and exists (
    select 1 from cursors k join groups g on g.id = k.group_id
    where k.partition_id = ?1 and g.name = fan_in_parts.group_name and k.committed <= fan_in_parts.position
      and not exists (select 1 from skips s where s.partition_id = ?1 and s.position = fan_in_parts.position
          and s.group_id = k.group_id)
      and (fan_in_parts.position >= k.claimed
          or exists (select 1 from claims c where c.partition_id = ?1 and c.group_id = k.group_id
              and c.first_pos <= fan_in_parts.position and c.upto > fan_in_parts.position)
          or exists (select 1 from failures f where f.partition_id = ?1 and f.group_id = k.group_id
              and f.position = fan_in_parts.position)))

-- name: forget_claims (in forget_below)
delete from claims where partition_id = ? and upto <= ?

-- name: cut_claims (in forget_below)
update claims set first_pos = ?2 where partition_id = ?1 and first_pos < ?2

-- name: move_cursors (in forget_below)
-- In an unordered queue, to the first unfinished message.
update cursors
set committed = min(max(?2, claimed),
        coalesce((select min(c.first_pos) from claims c
            where c.partition_id = ?1 and c.group_id = cursors.group_id), max(?2, claimed)),
        coalesce((select min(f.position) from failures f
            where f.partition_id = ?1 and f.group_id = cursors.group_id and f.due_at is not null), max(?2, claimed))),
    lease = null, lease_start = null, leased_at = null,
    ready_at = iif(?2 < ?3, ?4, null),
    failing = exists (select 1 from failures f
        where f.partition_id = ?1 and f.group_id = cursors.group_id and f.position >= ?2)
        or exists (select 1 from skips s
        where s.partition_id = ?1 and s.group_id in (0, cursors.group_id) and s.position >= ?2)
where partition_id = ?1 and committed < ?2

-- name: move_start (in forget_below)
update partitions set start = ? where id = ?

-- name: to_trim (in forget_below)
insert or ignore into trims (partition_id) values (?)

-- name: still_wanted (in drop_partition)
select exists (select 1 from dead_letters where partition_id = ?1)
    or exists (select 1 from stream_state where partition_id = ?1)
    or exists (select 1 from operation_backlogs where partition_id = ?1)
    or exists (select 1 from partitions where id = ?1 and paused_at is not null)
    or exists (select 1 from cursors where partition_id = ?1 and parked)
    or exists (select 1 from scheduled_segments where partition_id = ?1)
    or exists (select 1 from deleted_ids where partition_id = ?1)
