-- part: operation
o.id, o.type, o.status, o.priority, o.tenant, o.queue, o.partition_name, o."group", 0, o.partition_id, o.queue_id, o.group_id, o.sequence

-- part: rest
o.size, o.messages, o.created_at, o.started_at, o.processed_at, o.worker, o.retries, o.error, o.failed_at, o.result, 'store'

-- part: this
partition_id = :partition_id and group_id = :group_id

-- name: give_back
update operation_backlogs set ready_at = :now, claim = null where claim = :token returning 1

-- name: postpone
-- Each:
update operation_backlogs set ready_at = :now + :delay_ms * 1000, claim = null
where partition_id = :partition_ids and group_id = :group_ids and claim = :tokens
returning partition_id, group_id

-- name: wait_again
-- Each:
update operations set status = 'pending', error = :error
where partition_id = :partition_ids and group_id = :group_ids and status = 'processing' and sequence >= (
    select next_sequence from operation_backlogs where partition_id = :partition_ids and group_id = :group_ids)

-- name: claimed
select 1 from operation_backlogs where {this} and claim = :token

-- name: charge
update operations set retries = retries + 1, error = :error, failed_at = :now
where {this} and sequence in (select value from json_each(:sequences))
returning sequence, retries

-- name: drop
-- Ends one open operation without applying it: the places of its messages are free, and so is its backlog.
update operations
set status = :status, processed_at = :now, error = coalesce(:error, error), failed_at = iif(:error is null, failed_at, :now)
where {this} and sequence = :sequence;
update queues set depth = depth - (select messages from operations where {this} and sequence = :sequence)
where id = (select queue_id from partitions where id = :partition_id) and options ->> '$.max_size' > 0;
update partitions set open_operations = open_operations - 1
where id = :partition_id and :group_id = 0 and open_operations > 0;
update operation_backlogs
set open = open - 1, messages = messages - (select o.messages from operations o where o.partition_id = :partition_id
        and o.group_id = :group_id and o.sequence = :sequence),
    next_sequence = iif(:keep_claim, next_sequence, max(next_sequence, :sequence + 1)),
    ready_at = iif(:keep_claim, ready_at, :now), moved_at = iif(:keep_claim, moved_at, :now),
    claim = iif(:keep_claim, claim, null)
where {this};
delete from operation_backlogs where {this} and open <= 0

-- name: get
select {operation}, o.payload, {rest} from operations o where o.id = :id and o.tenant = :tenant

-- name: shown
-- Each:
select {operation}, x'', {rest} from operations o where o.id = :ids

-- name: page
select id from operations
where tenant = :tenant and id > :after and (:status is null or status = :status) and (:queue is null or queue = :queue)
order by id limit :limit

-- name: page_failed
select id from operations
where tenant = :tenant and id > :after and status = :status and failed_at is not null and (:queue is null or queue = :queue)
order by id limit :limit

-- name: page_open
select o.id from operation_backlogs l cross join operations o
    on o.partition_id = l.partition_id and o.group_id = l.group_id and o.sequence >= l.next_sequence
where l.tenant = :tenant and o.id > :after and o.status = :status and (:queue is null or l.queue = :queue)
order by o.id limit :limit

-- name: count_failed
select count(*) from operations where tenant = :tenant and failed_at is not null and status = 'failed'

-- name: lock
select status from operations where {this} and sequence = :sequence

-- name: give_up
update operations set status = 'discarded', processed_at = :now where {this} and sequence = :sequence

-- name: delete
delete from operations where {this} and sequence = :sequence

-- name: depth
select coalesce(sum(open), 0) from operation_backlogs

-- name: acks
select coalesce(sum(open), 0) from operation_backlogs where partition_id = :partition_id and group_id = :group_id

-- name: counts
select type, priority, status, count(*), min(created_at), max(created_at), avg(processed_at - created_at) / 1e6
from operations
where tenant = :tenant and (status <> 'completed' or processed_at > :now - 5 * 60 * 1000000)
group by type, priority, status

-- name: backlogs
select queue, partition_name, "group", open, moved_at from operation_backlogs
where tenant = :tenant order by open desc, moved_at limit :limit

-- name: now
select :now

-- name: clean
delete from operations where rowid in (
    select rowid from operations
    where id < :newest and status in ('completed', 'discarded') and processed_at < :now - :seconds * 1000000
    order by id limit :limit)
returning 1

-- name: clean_failed
delete from operations where rowid in (
    select rowid from operations
    where failed_at is not null and status = 'failed' and processed_at < :now - :seconds * 1000000 limit :limit)
returning 1
