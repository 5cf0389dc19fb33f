-- name: segments_backward (in newest_messages)
select first_pos, created_at, ends, body, checksum
from segments
where partition_id = ? and first_pos < ?
order by first_pos desc

-- name: holes_at (in newest_messages)
select position from skips where partition_id = ? and group_id = 0 and position >= ? and position < ?

-- name: queue_of (in lock_partition)
select q.id, q.options from partitions p join queues q on q.id = p.queue_id where p.id = ?

-- name: first_open (in is_open)
select coalesce((select min(c.committed) from counting c where c.partition_id = p.id), p.start)
from partitions p
where p.id = ?

-- name: insert_skip (in delete_message)
insert into skips (partition_id, position, group_id, created_at) values (?, ?, ?, ?)

-- name: delete_skips_at (in delete_message)
delete from skips where partition_id = ? and position = ?

-- name: mark (in delete_message)
update cursors set failing = 1 where partition_id = ? and committed <= ?

-- name: groups_of (in delete_message)
select group_id from cursors where partition_id = ?

-- name: delete_letters_at (in delete_message)
delete from dead_letters where partition_id = ? and position = ?

-- name: delete_failures_at (in delete_message)
delete from failures where partition_id = ? and position = ?

-- name: delete_results_at (in delete_message)
delete from results where partition_id = ? and position = ?

-- name: delete_cancellations_at (in delete_message)
delete from cancellations where partition_id = ? and position = ?

-- name: forget_failure (in dead_letter_message)
delete from failures where partition_id = ? and group_id = ? and position = ?

-- name: partitions_since (in with_id)
select id, queue_id, name from partitions
where queue_id in (select value from json_each(?1)) and last_at >= ?2 and head > start
  and (?3 is null or id in (select value from json_each(?3)))

-- name: trims (in trim)
select t.partition_id, p.start, t.cleared from trims t left join partitions p on p.id = t.partition_id limit 1

-- name: trim_traced (in trim)
delete from traced where (trace_id, partition_id, position) in
    (select trace_id, partition_id, position from traced where partition_id = ?1 and position < ?2 limit ?3)

-- name: trim_traces (in trim)
-- Records are newer than their message, so records from before the first remaining message have no message.
delete from traces where rowid in (select x.rowid from traces x join partitions p on p.id = x.partition_id
    where x.partition_id = ?1 and (p.start = p.head or x.created_at < (select s.created_at from segments s
        where s.partition_id = ?1 and s.first_pos <= ?2 order by s.first_pos desc limit 1)) limit ?3)

-- name: trim_trace_names (in trim)
delete from trace_names where (tenant_id, name, created_at, trace_id) in
    (select n.tenant_id, n.name, n.created_at, n.trace_id from trace_names n
    where n.partition_id = ?1 and ?2 is not null and not exists (select 1 from traces t
        where t.partition_id = ?1 and t.transaction_id = n.transaction_id and t.id = n.trace_id) limit ?3)

-- name: trimmed (in trim)
delete from trims where partition_id = ?

-- name: delete_traces_of (in delete_message)
delete from traces where partition_id = ? and transaction_id = ?

-- name: delete_trace_names_of (in delete_message)
delete from trace_names where partition_id = ? and transaction_id = ?
