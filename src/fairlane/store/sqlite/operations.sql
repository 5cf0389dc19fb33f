-- name: known (in enqueue)
select exists (select 1 from operations where id = ?)

-- name: partition (in enqueue)
select p.queue_id, p.next_operation
from partitions p join queues q on q.id = p.queue_id
where p.id = ?

-- name: insert (in enqueue)
insert into operations (partition_id, group_id, sequence, id, type, priority, tenant, queue, partition_name, "group",
    queue_id, payload, size, messages, created_at, timeout_seconds)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: record
insert or ignore into operations (partition_id, group_id, sequence, id, type, priority, tenant, queue, partition_name, "group",
    queue_id, payload, size, messages, status, created_at, processed_at, result)
values (?1, 0, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, x'', 0, ?10, 'completed', min(?11, ?12), ?12, ?13)

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
where ready_at <= ? order by priority, ready_at limit ?

-- name: take (in claim_operations)
update operation_backlogs set ready_at = ?, claim = ? where partition_id = ? and group_id = ?

-- name: run (in claim_operations)
select sequence, size from operations
where partition_id = ? and group_id = ? and sequence >= ? and status in ('pending', 'processing')
order by sequence limit ?

-- name: begin
update operations set status = 'processing', started_at = ?, worker = ?
where partition_id = ? and group_id = ? and sequence = ?
returning partition_id, group_id, sequence, id, type, priority, tenant, queue, partition_name, "group", queue_id, payload,
    size, messages, status, created_at, started_at, processed_at, worker, retries, error, failed_at, result

-- name: claim_token
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

-- name: shorten (in drop_operation)
update operation_backlogs set open = open - 1, messages = messages - ?1 where partition_id = ?2 and group_id = ?3

-- name: forget_backlog (in drop_operation)
delete from operation_backlogs where partition_id = ? and group_id = ? and open <= 0

-- name: postpone
update operation_backlogs set ready_at = ?1, claim = null
where partition_id = ?2 and group_id = ?3 and claim = ?4

-- name: give_back
update operation_backlogs set ready_at = ?1, claim = null where claim = ?2 returning 1

-- name: wait_again
update operations set status = 'pending', error = ?3
where partition_id = ?1 and group_id = ?2 and status = 'processing'
    and sequence >= (select next_sequence from operation_backlogs where partition_id = ?1 and group_id = ?2)

-- name: charge
update operations set retries = retries + 1, error = ?1, failed_at = ?2
where partition_id = ?3 and group_id = ?4 and sequence = ?5
returning retries, messages

-- name: end (in give_up)
update operations set status = ?1, processed_at = ?2 where partition_id = ?3 and group_id = ?4 and sequence = ?5

-- name: delete
delete from operations where partition_id = ? and group_id = ? and sequence = ?

-- name: get
select partition_id, group_id, sequence, id, type, priority, tenant, queue, partition_name, "group", queue_id, payload,
    size, messages, status, created_at, started_at, processed_at, worker, retries, error, failed_at, result
from operations where id = ? and tenant = ?

-- name: page
select id from operations
where tenant = ?1 and id > ?2 and (?3 is null or status = ?3) and (?4 is null or queue = ?4) order by id limit ?5

-- name: page_failed
select id from operations
where tenant = ?1 and id > ?2 and status = ?3 and failed_at is not null and (?4 is null or queue = ?4) order by id limit ?5

-- name: page_open
select o.id from operation_backlogs l cross join operations o
    on o.partition_id = l.partition_id and o.group_id = l.group_id and o.sequence >= l.next_sequence
where l.tenant = ?1 and o.id > ?2 and o.status = ?3 and (?4 is null or l.queue = ?4) order by o.id limit ?5

-- name: keep_created_at
update operations set created_at = ? where id = ?

-- name: count_failed
select count(*) from operations where tenant = ? and failed_at is not null and status = 'failed'

-- name: depth
select coalesce(sum(open), 0) from operation_backlogs

-- name: counts
select type, priority, status, count(*), min(created_at), max(created_at), avg(processed_at - created_at) / 1e6
from operations
where tenant = ? and (status <> 'completed' or processed_at > ?)
group by type, priority, status

-- name: backlogs
select queue, partition_name, "group", open, moved_at from operation_backlogs
where tenant = ? order by open desc, moved_at limit ?

-- name: clean
delete from operations where rowid in (
    select rowid from operations
    where id < ? and status in ('completed', 'discarded') and processed_at < ? order by id limit ?)

-- name: clean_failed
delete from operations where rowid in (
    select rowid from operations where failed_at is not null and status = 'failed' and processed_at < ? limit ?)
