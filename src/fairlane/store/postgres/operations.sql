-- name: enqueue (steps)
SELECT * FROM fairlane.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: claim (steps)
SELECT o.shard, o.partition_id, o.group_id, o.sequence, o.id, o.type, o.priority, o.tenant, o.queue, o.partition_name,
       o."group", o.queue_id, o.payload, o.size, o.messages, o.status, o.created_at, o.started_at, o.processed_at, o.worker,
       o.retries, o.error, o.failed_at, o.result
FROM fairlane.claim_operations($1, $2, $3, $4, $5, $6, $7, $8) o;

-- name: begin
SELECT * FROM fairlane.begin_operations($1, $2, $3, $4, $5);

-- name: finish (steps)
SELECT fairlane.finish_operations($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: drop (steps)
SELECT fairlane.drop_operation($1, $2, $3, $4, $5, $6, $7, $8);

-- name: postpone
UPDATE fairlane.operation_backlogs l SET ready_at = coalesce($6, clock_timestamp()) + $5::interval, claim = NULL
FROM unnest($2::bigint[], $3::bigint[], $4::uuid[]) u(partition_id, group_id, claim)
WHERE l.shard = $1 AND l.partition_id = u.partition_id AND l.group_id = u.group_id AND l.claim = u.claim
RETURNING l.partition_id, l.group_id;

-- name: give_back
UPDATE fairlane.operation_backlogs l SET ready_at = coalesce($3, clock_timestamp()), claim = NULL
WHERE l.shard = $1 AND l.claim = $2
RETURNING 1;

-- name: wait_again
UPDATE fairlane.operations o SET status = 'pending', error = $4
FROM unnest($2::bigint[], $3::bigint[]) u(partition_id, group_id)
JOIN fairlane.operation_backlogs l ON l.shard = $1 AND l.partition_id = u.partition_id AND l.group_id = u.group_id
WHERE o.shard = $1 AND o.partition_id = u.partition_id AND o.group_id = u.group_id
  AND o.sequence >= l.next_sequence AND o.status = 'processing';

-- name: claim_token
SELECT l.claim FROM fairlane.operation_backlogs l WHERE l.shard = $1 AND l.partition_id = $2 AND l.group_id = $3 FOR UPDATE;

-- name: charge
UPDATE fairlane.operations o SET retries = o.retries + 1, error = $5, failed_at = coalesce($6, clock_timestamp())
WHERE o.shard = $1 AND o.partition_id = $2 AND o.group_id = $3 AND o.sequence = ANY ($4)
RETURNING o.sequence, o.retries;

-- name: record
INSERT INTO fairlane.operations (shard, partition_id, group_id, sequence, id, type, priority, tenant, queue, partition_name,
                                 "group", queue_id, payload, size, messages, status, created_at, processed_at, result)
SELECT $1, u.partition_id, 0, u.sequence, u.id, u.type, u.priority, u.tenant, u.queue, u.partition_name, u."group", 0, '', 0,
       u.messages, 'completed', least(u.created_at, t.now), t.now, u.result
FROM unnest($2::bigint[], $3::bigint[], $4::uuid[], $5::text[], $6::int[], $7::text[], $8::text[], $9::text[], $10::text[],
            $11::int[], $12::timestamptz[], $13::bytea[])
     u(partition_id, sequence, id, type, priority, tenant, queue, partition_name, "group", messages, created_at, result)
CROSS JOIN (SELECT coalesce($14, clock_timestamp()) AS now) t
ON CONFLICT DO NOTHING;

-- name: get
SELECT o.shard, o.partition_id, o.group_id, o.sequence, o.id, o.type, o.priority, o.tenant, o.queue, o.partition_name,
       o."group", o.queue_id, o.payload, o.size, o.messages, o.status, o.created_at, o.started_at, o.processed_at, o.worker,
       o.retries, o.error, o.failed_at, o.result
FROM fairlane.operations o WHERE o.shard = $1 AND o.id = $3 AND o.tenant = $2;

-- name: page
SELECT o.id FROM fairlane.operations o
WHERE o.shard = $1 AND o.tenant = $2 AND o.id > $3 AND ($4::text IS NULL OR o.status = $4)
  AND ($5::text IS NULL OR o.queue = $5)
ORDER BY o.id LIMIT $6;

-- name: page_failed
SELECT o.id FROM fairlane.operations o
WHERE o.shard = $1 AND o.tenant = $2 AND o.id > $3 AND o.status = $4 AND o.failed_at IS NOT NULL
  AND ($5::text IS NULL OR o.queue = $5)
ORDER BY o.id LIMIT $6;

-- name: page_open
SELECT o.id FROM fairlane.operation_backlogs l
JOIN fairlane.operations o ON o.shard = l.shard AND o.partition_id = l.partition_id AND o.group_id = l.group_id
                          AND o.sequence >= l.next_sequence
WHERE l.shard = $1 AND l.tenant = $2 AND o.id > $3 AND o.status = $4 AND ($5::text IS NULL OR l.queue = $5)
ORDER BY o.id LIMIT $6;

-- name: shown (in get)
SELECT o.shard, o.partition_id, o.group_id, o.sequence, o.id, o.type, o.priority, o.tenant, o.queue, o.partition_name,
       o."group", o.queue_id, ''::bytea AS payload, o.size, o.messages, o.status, o.created_at, o.started_at,
       o.processed_at, o.worker, o.retries, o.error, o.failed_at, o.result
FROM fairlane.operations o WHERE o.shard = $1 AND o.id = ANY ($2);

-- name: keep_created_at
UPDATE fairlane.operations o SET created_at = $3 WHERE o.shard = $1 AND o.id = $2;

-- name: count_failed
SELECT count(*) FROM fairlane.operations o WHERE o.shard = $1 AND o.tenant = $2 AND o.failed_at IS NOT NULL AND o.status = 'failed';

-- name: lock (lock)
SELECT o.status FROM fairlane.operations o
WHERE o.shard = $1 AND o.partition_id = $2 AND o.group_id = $3 AND o.sequence = $4 FOR UPDATE;

-- name: give_up (in end)
UPDATE fairlane.operations o SET status = 'discarded', processed_at = coalesce($5, clock_timestamp())
WHERE o.shard = $1 AND o.partition_id = $2 AND o.group_id = $3 AND o.sequence = $4;

-- name: delete
DELETE FROM fairlane.operations o
WHERE o.shard = $1 AND o.partition_id = $2 AND o.group_id = $3 AND o.sequence = $4;

-- name: depth
SELECT coalesce(sum(l.open), 0)::bigint FROM fairlane.operation_backlogs l WHERE l.shard = $1;

-- name: counts
SELECT o.type, o.priority, o.status, count(*) AS count, min(o.created_at) AS oldest, max(o.created_at) AS newest,
       avg(extract(epoch FROM o.processed_at - o.created_at))::float8 AS latency_seconds
FROM fairlane.operations o
WHERE o.tenant = $1
  AND (o.status <> 'completed' OR o.processed_at > coalesce($2, clock_timestamp()) - interval '5 minutes')
GROUP BY o.type, o.priority, o.status;

-- name: backlogs
SELECT l.queue, l.partition_name, l."group", l.open, l.moved_at FROM fairlane.operation_backlogs l
WHERE l.shard = ANY ($1) AND l.tenant = $2 ORDER BY l.open DESC, l.moved_at LIMIT $3;

-- name: clean
-- Ids are made before operations end, so that those which begin with a later time need no look.
DELETE FROM fairlane.operations o WHERE o.shard = $1 AND o.id = ANY (ARRAY(
    SELECT x.id FROM fairlane.operations x
    WHERE x.shard = $1 AND x.id < $2 AND x.status IN ('completed', 'discarded')
      AND x.processed_at < coalesce($4, clock_timestamp()) - $3::interval
    ORDER BY x.id LIMIT $5))
RETURNING 1;

-- name: clean_failed
DELETE FROM fairlane.operations o WHERE o.shard = $1 AND o.id = ANY (ARRAY(
    SELECT x.id FROM fairlane.operations x
    WHERE x.shard = $1 AND x.failed_at IS NOT NULL AND x.status = 'failed'
      AND x.processed_at < coalesce($3, clock_timestamp()) - $2::interval
    LIMIT $4))
RETURNING 1;
