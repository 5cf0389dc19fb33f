-- name: add (steps)
SELECT * FROM fairlane.add_scheduled($1, $2, $3, $4, $5, $6, $7::text::bigint[], $8::text::bigint[], $9, $10::text::bigint[],
                                $11::text::int[], $12, $13, $14, $15, $16, $17, $18);

-- name: doubt
-- These messages may be kept already, or may be yet, by a call that nobody waits for any more.
UPDATE fairlane.partitions p
SET doubted_until_ms = greatest(p.doubted_until_ms,
                                least(u.id_ms, (extract(epoch FROM coalesce($4, clock_timestamp())) * 1000)::bigint + 60000))
FROM unnest($2::bigint[], $3::bigint[]) u(id, id_ms) WHERE p.shard = $1 AND p.id = u.id;

-- name: due
SELECT * FROM fairlane.due_scheduled($1, $2, $3, $4);

-- name: options
SELECT q.id, q.options::text AS options FROM fairlane.queues q WHERE q.id = ANY ($1);

-- name: born (steps)
SELECT b.id, b.name FROM fairlane.born($1, ARRAY[$2::bigint], ARRAY[$3::text], true, $4) b;

-- name: proceed
SELECT fairlane.proceed_scheduled($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: change (steps)
SELECT fairlane.change_scheduled($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: list
WITH found AS MATERIALIZED (
    SELECT b.id, d.at, d.i
    FROM fairlane.scheduled_segments b
    JOIN fairlane.scheduled_messages m ON m.shard = b.shard AND m.id = b.id
    CROSS JOIN LATERAL unnest(m.due) WITH ORDINALITY d(at, i)
    WHERE b.shard = $1 AND b.queue_id = $2 AND b.last_at >= fairlane.at_us($3) AND d.i > b.taken
      AND (d.at > $3 OR d.at = $3 AND encode(substring(m.body FROM coalesce(m.ends[d.i - 1], 0) + 8 FOR 36), 'escape') > $4))
SELECT b.partition_id, b.partition_name::text, substring(m.body FROM coalesce(m.ends[f.i - 1], 0) + 1 FOR 2200) AS head, f.at
FROM found f
JOIN fairlane.scheduled_segments b ON b.shard = $1 AND b.id = f.id
JOIN fairlane.scheduled_messages m ON m.shard = $1 AND m.id = f.id
WHERE f.at <= coalesce((SELECT l.at FROM found l ORDER BY l.at LIMIT 1 OFFSET $5 - 1), f.at)
ORDER BY f.at, substring(m.body FROM coalesce(m.ends[f.i - 1], 0) + 8 FOR 36)
LIMIT $5;

-- name: next_at
SELECT min(b.next_at) AS next_at, coalesce($2, clock_timestamp()) AS now FROM fairlane.scheduled_segments b WHERE b.shard = $1;
