-- part: operation
o.id, o.type, o.status, o.priority, o.tenant, o.queue, o.partition_name, o."group", o.shard, o.partition_id, o.queue_id,
       o.group_id, o.sequence

-- part: rest
o.size, o.messages, o.created_at, o.started_at, o.processed_at, o.worker, o.retries, o.error, o.failed_at, o.result, 'store'

-- part: backlog
l.shard = :shard AND l.partition_id = :partition_id AND l.group_id = :group_id

-- part: this
o.shard = :shard AND o.partition_id = :partition_id AND o.group_id = :group_id

-- name: claim (steps)
SELECT {operation}, o.payload, {rest}
FROM fairlane.claim_operations(:shard, :worker, :token, :backlogs, :run, :bytes, make_interval(secs => :timeout), :now) o;

-- name: give_back
UPDATE fairlane.operation_backlogs l SET ready_at = coalesce(:now, clock_timestamp()), claim = NULL
WHERE l.shard = :shard AND l.claim = :token RETURNING 1;

-- name: postpone
UPDATE fairlane.operation_backlogs l
SET ready_at = coalesce(:now, clock_timestamp()) + :delay_ms::int * interval '1 millisecond', claim = NULL
FROM unnest(:partition_ids::bigint[], :group_ids::bigint[], :tokens::uuid[]) u(partition_id, group_id, claim)
WHERE l.shard = :shard AND l.partition_id = u.partition_id AND l.group_id = u.group_id AND l.claim = u.claim
RETURNING l.partition_id, l.group_id;

-- name: wait_again
UPDATE fairlane.operations o SET status = 'pending', error = :error
FROM unnest(:partition_ids::bigint[], :group_ids::bigint[]) u(partition_id, group_id)
JOIN fairlane.operation_backlogs l ON l.shard = :shard AND l.partition_id = u.partition_id AND l.group_id = u.group_id
WHERE o.shard = :shard AND o.partition_id = u.partition_id AND o.group_id = u.group_id
  AND o.sequence >= l.next_sequence AND o.status = 'processing';

-- name: claimed
SELECT 1 FROM fairlane.operation_backlogs l WHERE {backlog} AND l.claim = :token FOR UPDATE;

-- name: lock_backlog (lock)
SELECT 1 FROM fairlane.operation_backlogs l WHERE {backlog} FOR UPDATE;

-- name: charge
UPDATE fairlane.operations o SET retries = o.retries + 1, error = :error, failed_at = coalesce(:now, clock_timestamp())
WHERE {this} AND o.sequence = ANY (:sequences) RETURNING o.sequence, o.retries;

-- name: drop
SELECT fairlane.drop_operation(:shard, :partition_id, :group_id, :sequence, :status, :error, :keep_claim, :now);

-- name: get
SELECT {operation}, o.payload, {rest} FROM fairlane.operations o WHERE o.shard = :shard AND o.id = :id AND o.tenant = :tenant;

-- name: shown
SELECT {operation}, ''::bytea, {rest} FROM fairlane.operations o WHERE o.shard = :shard AND o.id = ANY (:ids);

-- name: page
SELECT o.id FROM fairlane.operations o
WHERE o.shard = :shard AND o.tenant = :tenant AND o.id > :after AND (:status::text IS NULL OR o.status = :status)
  AND (:queue::text IS NULL OR o.queue = :queue)
ORDER BY o.id LIMIT :limit;

-- name: page_failed
SELECT o.id FROM fairlane.operations o
WHERE o.shard = :shard AND o.tenant = :tenant AND o.id > :after AND o.status = :status AND o.failed_at IS NOT NULL
  AND (:queue::text IS NULL OR o.queue = :queue)
ORDER BY o.id LIMIT :limit;

-- name: page_open
SELECT o.id FROM fairlane.operation_backlogs l
JOIN fairlane.operations o ON o.shard = l.shard AND o.partition_id = l.partition_id AND o.group_id = l.group_id
                          AND o.sequence >= l.next_sequence
WHERE l.shard = :shard AND l.tenant = :tenant AND o.id > :after AND o.status = :status
  AND (:queue::text IS NULL OR l.queue = :queue)
ORDER BY o.id LIMIT :limit;

-- name: count_failed
SELECT count(*) FROM fairlane.operations o
WHERE o.shard = :shard AND o.tenant = :tenant AND o.failed_at IS NOT NULL AND o.status = 'failed';

-- name: lock
SELECT o.status FROM fairlane.operations o WHERE {this} AND o.sequence = :sequence FOR UPDATE;

-- name: give_up
UPDATE fairlane.operations o SET status = 'discarded', processed_at = coalesce(:now, clock_timestamp())
WHERE {this} AND o.sequence = :sequence;

-- name: delete
DELETE FROM fairlane.operations o WHERE {this} AND o.sequence = :sequence;

-- name: depth
SELECT coalesce(sum(l.open), 0)::bigint FROM fairlane.operation_backlogs l WHERE l.shard = :shard;

-- name: acks
SELECT coalesce(sum(l.open), 0)::bigint FROM fairlane.operation_backlogs l WHERE {backlog};

-- name: counts
SELECT o.type, o.priority, o.status, count(*), min(o.created_at), max(o.created_at),
       avg(extract(epoch FROM o.processed_at - o.created_at))::float8
FROM fairlane.operations o
WHERE o.tenant = :tenant
  AND (o.status <> 'completed' OR o.processed_at > coalesce(:now, clock_timestamp()) - interval '5 minutes')
GROUP BY o.type, o.priority, o.status;

-- name: backlogs
SELECT l.queue, l.partition_name, l."group", l.open, l.moved_at FROM fairlane.operation_backlogs l
WHERE l.shard = ANY (:shards) AND l.tenant = :tenant ORDER BY l.open DESC, l.moved_at LIMIT :limit;

-- name: now
SELECT coalesce(:now, clock_timestamp());

-- name: clean
DELETE FROM fairlane.operations o WHERE o.shard = :shard AND o.id = ANY (ARRAY(
    SELECT x.id FROM fairlane.operations x
    WHERE x.shard = :shard AND x.id < :newest AND x.status IN ('completed', 'discarded')
      AND x.processed_at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
    ORDER BY x.id LIMIT :limit))
RETURNING 1;

-- name: clean_failed
DELETE FROM fairlane.operations o WHERE o.shard = :shard AND o.id = ANY (ARRAY(
    SELECT x.id FROM fairlane.operations x
    WHERE x.shard = :shard AND x.failed_at IS NOT NULL AND x.status = 'failed'
      AND x.processed_at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
    LIMIT :limit))
RETURNING 1;
