-- part: operation
o.id, o.type, o.status, o.priority, o.tenant, o.queue, o.partition_name, o."group", o.partition_id, o.queue_id,
       o.group_id, o.sequence

-- part: rest
o.size, o.messages, o.created_at, o.started_at, o.processed_at, o.worker, o.retries, o.error, o.failed_at, o.result, 'store'

-- part: backlog
l.partition_id = :partition_id AND l.group_id = :group_id

-- part: this
o.partition_id = :partition_id AND o.group_id = :group_id

-- name: claim (postgres, steps)
SELECT {operation}, o.payload, {rest}
FROM fairlane.claim_operations(:worker, :token, :backlogs, :run, :bytes, make_interval(secs => :seconds), :now) o

-- name: release
UPDATE fairlane.operation_backlogs AS l SET ready_at = coalesce(:now, clock_timestamp()), claim = NULL
WHERE l.claim = :token RETURNING 1

-- name: postpone (postgres)
UPDATE fairlane.operation_backlogs l
SET ready_at = coalesce(:now, clock_timestamp()) + :delay_ms::int * interval '1 millisecond', claim = NULL
FROM unnest(:partition_ids::bigint[], :group_ids::bigint[], :tokens::uuid[]) u(partition_id, group_id, claim)
WHERE l.partition_id = u.partition_id AND l.group_id = u.group_id AND l.claim = u.claim
RETURNING l.partition_id, l.group_id

-- name: postpone (sqlite)
-- Each:
update operation_backlogs set ready_at = :now + :delay_ms * 1000, claim = null
where partition_id = :partition_ids and group_id = :group_ids and claim = :tokens
returning partition_id, group_id

-- name: wait_again
UPDATE fairlane.operations AS o SET status = 'pending', error = :error
FROM unnest(:partition_ids::bigint[], :group_ids::bigint[]) u(partition_id, group_id)
JOIN fairlane.operation_backlogs l ON l.partition_id = u.partition_id AND l.group_id = u.group_id
WHERE o.partition_id = u.partition_id AND o.group_id = u.group_id
  AND o.sequence >= l.next_sequence AND o.status = 'processing'

-- name: claimed
SELECT 1 FROM fairlane.operation_backlogs l WHERE {backlog} AND l.claim = :token FOR UPDATE

-- name: lock_backlog (postgres, lock)
SELECT 1 FROM fairlane.operation_backlogs l WHERE {backlog} FOR UPDATE

-- name: charge
UPDATE fairlane.operations AS o SET retries = o.retries + 1, error = :error, failed_at = coalesce(:now, clock_timestamp())
WHERE {this} AND o.sequence = ANY (:sequences) RETURNING sequence, retries

-- name: drop (postgres)
SELECT fairlane.drop_operation(:partition_id, :group_id, :sequence, :status, :error, :keep_claim, :now)

-- part: this_operation (sqlite)
partition_id = :partition_id and group_id = :group_id

-- name: drop (sqlite)
-- Ends one open operation without applying it. Frees the space of its messages and its place in the backlog.
update operations
set status = :status, processed_at = :now, error = coalesce(:error, error), failed_at = iif(:error is null, failed_at, :now)
where {this_operation} and sequence = :sequence;
update queues set depth = depth - (select messages from operations where {this_operation} and sequence = :sequence)
where id = (select queue_id from partitions where id = :partition_id) and options ->> '$.max_size' > 0;
update partitions set open_operations = open_operations - 1
where id = :partition_id and :group_id = 0 and open_operations > 0;
update operation_backlogs
set open = open - 1, messages = messages - (select o.messages from operations o where o.partition_id = :partition_id
        and o.group_id = :group_id and o.sequence = :sequence),
    next_sequence = iif(:keep_claim, next_sequence, max(next_sequence, :sequence + 1)),
    ready_at = iif(:keep_claim, ready_at, :now), moved_at = iif(:keep_claim, moved_at, :now),
    claim = iif(:keep_claim, claim, null)
where {this_operation};
delete from operation_backlogs where {this_operation} and open <= 0

-- name: get
SELECT {operation}, o.payload, {rest} FROM fairlane.operations o WHERE o.id = :id AND o.tenant = :tenant

-- name: shown (postgres)
SELECT {operation}, ''::bytea, {rest} FROM fairlane.operations o WHERE o.id = ANY (:ids)

-- name: shown (sqlite)
-- Each:
select {operation}, x'', {rest} from operations o where o.id = :ids

-- name: page
SELECT o.id FROM fairlane.operations o
WHERE o.tenant = :tenant AND o.id > :after AND (:status::text IS NULL OR o.status = :status)
  AND (:queue::text IS NULL OR o.queue = :queue)
ORDER BY o.id LIMIT :limit

-- name: page_newest
SELECT o.id FROM fairlane.operations o
WHERE o.tenant = :tenant AND o.id < :before AND o.status = :status AND (:queue::text IS NULL OR o.queue = :queue)
ORDER BY o.id DESC LIMIT :limit

-- name: page_failed
SELECT o.id FROM fairlane.operations o
WHERE o.tenant = :tenant AND o.id > :after AND o.status = :status AND o.failed_at IS NOT NULL
  AND (:queue::text IS NULL OR o.queue = :queue)
ORDER BY o.id LIMIT :limit

-- name: page_open
SELECT o.id FROM fairlane.operation_backlogs l CROSS JOIN fairlane.operations o
WHERE o.partition_id = l.partition_id AND o.group_id = l.group_id AND o.sequence >= l.next_sequence
  AND l.tenant = :tenant AND o.id > :after AND o.status = :status
  AND (:queue::text IS NULL OR l.queue = :queue)
ORDER BY o.id LIMIT :limit

-- name: count_failed
SELECT count(*) FROM fairlane.operations o
WHERE o.tenant = :tenant AND o.failed_at IS NOT NULL AND o.status = 'failed'

-- name: lock
SELECT o.status FROM fairlane.operations o WHERE {this} AND o.sequence = :sequence FOR UPDATE

-- name: give_up
UPDATE fairlane.operations AS o SET status = 'discarded', processed_at = coalesce(:now, clock_timestamp())
WHERE {this} AND o.sequence = :sequence

-- name: delete
DELETE FROM fairlane.operations AS o WHERE {this} AND o.sequence = :sequence

-- name: depth
SELECT coalesce(sum(l.open), 0)::bigint FROM fairlane.operation_backlogs l

-- name: acks
SELECT coalesce(sum(l.open), 0)::bigint FROM fairlane.operation_backlogs l WHERE {backlog}

-- name: counts (postgres)
SELECT o.type, o.priority, o.status, count(*), min(o.created_at), max(o.created_at),
       avg(extract(epoch FROM o.processed_at - o.created_at))::float8
FROM fairlane.operations o
WHERE o.tenant = :tenant
  AND (o.status <> 'completed' OR o.processed_at > coalesce(:now, clock_timestamp()) - interval '5 minutes')
GROUP BY o.type, o.priority, o.status

-- name: counts (sqlite)
select type, priority, status, count(*), min(created_at), max(created_at), avg(processed_at - created_at) / 1e6
from operations
where tenant = :tenant and (status <> 'completed' or processed_at > :now - 5 * 60 * 1000000)
group by type, priority, status

-- name: backlogs
SELECT l.queue, l.partition_name, l."group", l.open, l.moved_at FROM fairlane.operation_backlogs l
WHERE l.tenant = :tenant ORDER BY l.open DESC, l.moved_at LIMIT :limit

-- name: now
SELECT coalesce(:now, clock_timestamp())

-- name: clean
DELETE FROM fairlane.operations AS o WHERE o.id = ANY (ARRAY(
    SELECT x.id FROM fairlane.operations x
    WHERE x.id < :newest AND x.status IN ('completed', 'discarded')
      AND x.processed_at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
    ORDER BY x.id LIMIT :limit))
RETURNING 1

-- name: clean_failed
DELETE FROM fairlane.operations AS o WHERE o.id = ANY (ARRAY(
    SELECT x.id FROM fairlane.operations x
    WHERE x.failed_at IS NOT NULL AND x.status = 'failed'
      AND x.processed_at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
    LIMIT :limit))
RETURNING 1
