-- name: active
SELECT p.shard, p.id, p.queue_id, p.name::text, p.last_at FROM fairlane.partitions p
WHERE p.shard = ANY ($1) AND p.queue_id = ANY ($2) AND p.head > p.start AND p.last_at >= $3
  AND ($4::text IS NULL OR p.name = $4)
  AND ($5::timestamptz IS NULL OR (p.last_at, p.shard, p.id) < ($5, $6::int, $7::bigint))
ORDER BY p.last_at DESC, p.shard DESC, p.id DESC LIMIT $8;

-- name: back (steps)
SELECT b.item, b.pos, b.at, b.head FROM fairlane.back($1, $2, $3, $4, $5, $6, $7) b;

-- name: delete (steps)
SELECT fairlane.delete_message($1, $2, $3, $4, $5);

-- name: dead_letter (steps)
SELECT fairlane.dead_letter_message($1, $2, $3, $4, $5, $6);

-- name: lock_scheduled (lock)
-- Who appends what is due holds segments before queues and partitions. $3: of this partition alone, 0 for all.
SELECT count(*) FROM (
    SELECT 1 FROM fairlane.scheduled_segments b
    WHERE b.shard = $1 AND b.partition_id = ANY (ARRAY(
        SELECT p.id FROM fairlane.partitions p WHERE p.shard = $1 AND p.queue_id = $2 AND $3::bigint IN (0, p.id)))
    ORDER BY b.id FOR UPDATE) x;

-- name: clear (steps)
SELECT fairlane.clear($1, $2, $3);

-- name: traced
SELECT t.partition_id, t.position, p.queue_id, p.name::text FROM fairlane.traced t
JOIN fairlane.partitions p ON p.shard = t.shard AND p.id = t.partition_id
WHERE t.shard = $1 AND t.trace_id = $2 AND t.position >= p.start AND p.queue_id = ANY ($3) LIMIT $4;

-- name: with_key (in partitions_since)
SELECT p.id, k.position, p.queue_id, p.name::text FROM fairlane.partitions p
CROSS JOIN LATERAL (SELECT m.position FROM fairlane.message_keys m
                    WHERE m.shard = $1 AND m.partition_id = p.id AND m.key = ANY ($3) AND m.transaction_id = $4) k
WHERE p.shard = $1 AND p.queue_id = ANY ($2) AND k.position >= p.start;

-- name: with_time (in partitions_since)
SELECT p.id, s.first_pos + u.ord - 1 AS position, p.queue_id, p.name::text FROM fairlane.partitions p
CROSS JOIN LATERAL (SELECT x.first_pos, x.keys FROM fairlane.segments x
                    WHERE x.shard = $1 AND x.partition_id = p.id AND x.keys && $3
                      AND x.first_pos >= fairlane.position_at($1, p.id, $4)
                      AND x.first_pos < fairlane.position_at($1, p.id, $5)) s
CROSS JOIN LATERAL unnest(s.keys) WITH ORDINALITY u(key, ord)
WHERE p.shard = $1 AND p.queue_id = ANY ($2) AND p.last_at >= $4 AND p.created_at <= $5 AND u.key = ANY ($3)
  AND s.first_pos + u.ord > p.start;

-- name: trims
SELECT t.partition_id FROM fairlane.trims t WHERE t.shard = $1 LIMIT $2;

-- name: trim_log (steps)
SELECT fairlane.trim_log($1, $2, $3, $4);

-- name: trim_beside (steps)
SELECT fairlane.trim_beside($1, $2);

-- name: forget_ids (steps)
SELECT fairlane.forget_ids($1, $2, $3);

-- name: trim_traced
DELETE FROM fairlane.traced x USING fairlane.partitions p
WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND p.shard = $1 AND p.id = x.partition_id AND x.position < p.start;

-- name: trim_traces
-- A message is older than what is noted of it: what was noted before the first message that is left is of none that is.
DELETE FROM fairlane.traces x USING fairlane.partitions p
WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND p.shard = $1 AND p.id = x.partition_id
  AND (p.start = p.head OR x.created_at < (SELECT s.created_at FROM fairlane.segments s
       WHERE s.shard = $1 AND s.partition_id = p.id AND s.first_pos <= p.start ORDER BY s.first_pos DESC LIMIT 1));

-- name: trim_trace_names
DELETE FROM fairlane.trace_names x
WHERE x.shard = $1 AND x.partition_id = ANY ($2)
  AND NOT EXISTS (SELECT 1 FROM fairlane.traces t WHERE t.shard = $1 AND t.partition_id = x.partition_id
                  AND t.transaction_id = x.transaction_id AND t.id = x.trace_id);

-- name: hold (lock)
SELECT 1 FROM fairlane.partitions p WHERE p.shard = $1 AND p.id = ANY ($2) ORDER BY p.id FOR NO KEY UPDATE;

-- name: trimmed
DELETE FROM fairlane.trims t WHERE t.shard = $1 AND t.partition_id = ANY ($2)
  AND NOT EXISTS (SELECT 1 FROM fairlane.segments x JOIN fairlane.partitions p ON p.shard = x.shard AND p.id = x.partition_id
                  WHERE x.shard = $1 AND x.partition_id = t.partition_id AND x.first_pos < p.start
                    AND x.first_pos + x.n <= p.start)
  AND NOT EXISTS (SELECT 1 FROM fairlane.deleted_ids d WHERE d.shard = $1 AND d.partition_id = t.partition_id
                  AND d.first_pos < t.cleared);
