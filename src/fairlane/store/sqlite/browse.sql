-- name: active
select p.id, p.queue_id, p.name, p.last_at
from partitions p
where p.queue_id in (select value from json_each(?1))
    and p.head > p.start
    and p.last_at >= ?2
    and (?3 is null or p.name = ?3)
    and (?4 is null or (p.last_at, p.id) < (?4, ?5))
order by p.last_at desc, p.id desc
limit ?6

-- name: segments_backward
select first_pos, created_at, ends, body, checksum
from segments
where partition_id = ? and first_pos < ?
order by first_pos desc

-- name: holes_at
select position from skips where partition_id = ? and group_id = 0 and position >= ? and position < ?

-- name: queue_of
select q.id, q.options from partitions p join queues q on q.id = p.queue_id where p.id = ?

-- name: first_open
select coalesce((select min(c.committed) from counting c where c.partition_id = p.id), p.start)
from partitions p
where p.id = ?

-- name: insert_skip
insert into skips (partition_id, position, group_id, created_at) values (?, ?, ?, ?)

-- name: delete_skips_at
delete from skips where partition_id = ? and position = ?

-- name: mark
update cursors set failing = 1 where partition_id = ? and committed <= ?

-- name: groups_of
select group_id from cursors where partition_id = ?

-- name: delete_letters_at
delete from dead_letters where partition_id = ? and position = ?

-- name: delete_failures_at
delete from failures where partition_id = ? and position = ?

-- name: delete_results_at
delete from results where partition_id = ? and position = ?

-- name: forget_failure
delete from failures where partition_id = ? and group_id = ? and position = ?

-- name: count
select coalesce(sum(p.head - p.start
    - (select count(*) from skips s where s.partition_id = p.id and s.group_id = 0 and s.position >= p.start)), 0)
from partitions p
where p.queue_id = ?1 and (?2 is null or p.id = ?2)

-- name: clear_cursors
update cursors
set committed = (select p.head from partitions p where p.id = cursors.partition_id), claimed = 0, ready_at = null, lease = null,
    lease_start = null, lease_end = null, leased_at = null, last_lease = null, probe_until = 0, failing = 0
where partition_id in (select p.id from partitions p where p.queue_id = ?1 and (?2 is null or p.id = ?2))

-- name: clear_failures
delete from failures
where partition_id in (select p.id from partitions p where p.queue_id = ?1 and (?2 is null or p.id = ?2))

-- name: clear_scheduled_messages
delete from scheduled_messages
where id in (select b.id from scheduled_bundles b join partitions p on p.id = b.partition_id
             where p.queue_id = ?1 and (?2 is null or p.id = ?2))

-- name: clear_scheduled_keys
delete from scheduled_keys
where partition_id in (select p.id from partitions p where p.queue_id = ?1 and (?2 is null or p.id = ?2))

-- name: clear_scheduled_bundles
delete from scheduled_bundles
where partition_id in (select p.id from partitions p where p.queue_id = ?1 and (?2 is null or p.id = ?2))

-- name: clear_claims
delete from claims
where partition_id in (select p.id from partitions p where p.queue_id = ?1 and (?2 is null or p.id = ?2))

-- name: clear_skips
delete from skips
where partition_id in (select p.id from partitions p where p.queue_id = ?1 and (?2 is null or p.id = ?2))

-- name: clear_to_trim
insert into trims (partition_id, cleared)
select p.id, p.head from partitions p
where p.queue_id = ?1 and (?2 is null or p.id = ?2)
    and (p.start < p.head or exists (select 1 from deleted_ids d where d.partition_id = p.id))
on conflict do update set cleared = excluded.cleared

-- name: clear_partitions
update partitions set start = head where queue_id = ?1 and (?2 is null or id = ?2)

-- name: clear_to_expire
insert or ignore into expiries (partition_id, due_at)
select id, max(last_at, created_at) + 30 * 86400 * 1000000 from partitions where queue_id = ?1 and (?2 is null or id = ?2)

-- name: traced
select t.partition_id, t.position, p.queue_id, p.name from traced t cross join partitions p
where t.trace_id = ?1 and p.id = t.partition_id and t.position >= p.start
    and p.queue_id in (select value from json_each(?2))
limit ?3

-- name: partitions_since
select id, queue_id, name from partitions
where queue_id in (select value from json_each(?1)) and last_at >= ?2 and head > start

-- name: next_trim
select t.partition_id, p.start, t.cleared from trims t left join partitions p on p.id = t.partition_id limit 1

-- name: trim_traced
delete from traced where (trace_id, partition_id, position) in
    (select trace_id, partition_id, position from traced where partition_id = ?1 and position < ?2 limit ?3)

-- name: trim_traces
-- A message is older than what is noted of it: what was noted before the first message that is left is of none that is.
delete from traces where rowid in (select x.rowid from traces x join partitions p on p.id = x.partition_id
    where x.partition_id = ?1 and (p.start = p.head or x.created_at < (select s.created_at from segments s
        where s.partition_id = ?1 and s.first_pos <= ?2 order by s.first_pos desc limit 1)) limit ?3)

-- name: trim_trace_names
delete from trace_names where (tenant_id, name, created_at, trace_id) in
    (select n.tenant_id, n.name, n.created_at, n.trace_id from trace_names n
    where n.partition_id = ?1 and ?2 is not null and not exists (select 1 from traces t
        where t.partition_id = ?1 and t.transaction_id = n.transaction_id and t.id = n.trace_id) limit ?3)

-- name: trimmed
delete from trims where partition_id = ?

-- name: delete_traces_of
delete from traces where partition_id = ? and transaction_id = ?

-- name: delete_trace_names_of
delete from trace_names where partition_id = ? and transaction_id = ?
