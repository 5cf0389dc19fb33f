-- name: add
SELECT * FROM fairlane.schedule($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- name: due
SELECT x.due_at, x.message_id, x.partition_id, x.queue_id, x.partition_name::text, x.key, x.id_ms, x.given, x.transaction_id,
       x.message
FROM fairlane.scheduled x
WHERE x.shard = $1 AND x.due_at <= coalesce($3, clock_timestamp())
ORDER BY x.due_at, x.message_id LIMIT $2 FOR UPDATE SKIP LOCKED;

-- name: options
SELECT q.id, q.options::text AS options FROM fairlane.queues q WHERE q.id = ANY ($1);

-- name: born
SELECT * FROM fairlane.born($1, $2, $3, $4);

-- name: done
DELETE FROM fairlane.scheduled x USING unnest($2::timestamptz[], $3::text[]) d(at, id)
WHERE x.shard = $1 AND x.due_at = d.at AND x.message_id = d.id;

-- name: postpone
UPDATE fairlane.scheduled x SET due_at = coalesce($4, clock_timestamp()) + interval '1 second'
FROM unnest($2::timestamptz[], $3::text[]) d(at, id)
WHERE x.shard = $1 AND x.due_at = d.at AND x.message_id = d.id;

-- name: cancel
DELETE FROM fairlane.scheduled x
WHERE x.shard = $1 AND x.partition_id = $2 AND x.key = ANY ($3) AND x.transaction_id = $4 RETURNING x.key;

-- name: reschedule
UPDATE fairlane.scheduled x SET due_at = coalesce($5, coalesce($7, clock_timestamp()) + make_interval(secs => $6 / 1000.0))
WHERE x.shard = $1 AND x.partition_id = $2 AND x.key = ANY ($3) AND x.transaction_id = $4 RETURNING x.due_at;

-- name: list
SELECT x.shard, x.partition_id, x.partition_name::text, x.transaction_id, x.message_id, x.due_at FROM fairlane.scheduled x
WHERE x.shard = $1 AND x.queue_id = $2 AND (x.due_at, x.message_id) > ($3, $4) ORDER BY x.due_at, x.message_id LIMIT $5;

-- name: next_in
SELECT min(x.due_at) AS due_at, coalesce($2, clock_timestamp()) AS now FROM fairlane.scheduled x WHERE x.shard = $1;
