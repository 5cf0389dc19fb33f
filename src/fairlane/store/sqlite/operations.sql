-- name: known (in enqueue)
select exists (select 1 from operations where id = ?)

-- name: partition (in enqueue)
select p.queue_id, p.next_operation
from partitions p join queues q on q.id = p.queue_id
where p.id = ?

-- name: insert (in enqueue)
insert into operations (partition_id, group_id, sequence, id, type, priority, tenant, queue, partition_name, "group",
    queue_id, payload, size, messages, created_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: count_in (in enqueue)
update partitions
set next_operation = next_operation + 1, open_operations = open_operations + iif(?2 = 0, 1, 0)
where id = ?1

-- name: lengthen (in enqueue)
insert into operation_backlogs (partition_id, group_id, queue_id, tenant, queue, partition_name, "group", priority, open,
    messages, next_sequence, ready_at, moved_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, ?10, ?11, ?11)
on conflict do update set open = open + 1, messages = messages + excluded.messages

-- name: backlog_open (in enqueue)
select open from operation_backlogs where partition_id = ? and group_id = ?

-- name: ready (in claim_operations)
select partition_id, group_id, next_sequence from operation_backlogs
-- No claim or retry lasts twice the timeout: the clock was ahead then.
where ready_at <= ?1 or ready_at > ?1 + 2 * ?2 order by priority, ready_at limit ?3

-- name: take (in claim_operations)
update operation_backlogs set ready_at = ?, claim = ? where partition_id = ? and group_id = ?

-- name: run (in claim_operations)
select sequence, size from operations
where partition_id = ? and group_id = ? and sequence >= ? and status in ('pending', 'processing')
order by sequence limit ?

-- name: begin
update operations set status = 'processing', started_at = ?, worker = ?
where partition_id = ? and group_id = ? and sequence = ?
returning id, type, status, priority, tenant, queue, partition_name, "group", partition_id, queue_id, group_id, sequence,
    payload, size, messages, created_at, started_at, processed_at, worker, retries, error, failed_at, result, 'store'

-- name: claim_token (in begin_operations)
select claim from operation_backlogs where partition_id = ? and group_id = ?

-- name: open (in finish_operations)
select open_operations from partitions where id = ?

-- name: set_open (in finish_operations)
update partitions set open_operations = ? where id = ?

-- name: add_depth (in finish_operations)
update queues set depth = depth + ?1
where id = (select queue_id from partitions where id = ?2) and options ->> '$.max_size' > 0

-- name: complete (in finish_operations)
update operations
set status = 'completed', processed_at = ?, payload = x'', result = ?, error = null
where partition_id = ? and group_id = ? and sequence = ?

-- name: advance (in advance_backlogs)
update operation_backlogs
set open = open - ?1, messages = messages - ?2, next_sequence = max(next_sequence, ?3), ready_at = ?4, moved_at = ?4,
    claim = null
where partition_id = ?5 and group_id = ?6

-- name: forget_backlog (in drop_operation)
delete from operation_backlogs where partition_id = ? and group_id = ? and open <= 0
