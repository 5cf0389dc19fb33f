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
