-- name: add (steps)
SELECT * FROM fairlane.add_scheduled($1, $2, $3, $4, $5, $6::text::bigint[], $7::text::bigint[], $8, $9::text::bigint[],
                                $10::text::int[], $11, $12, $13, $14, $15, $16, $17);

-- name: doubt
-- These messages may be stored already, or may still be, by an abandoned call.
UPDATE fairlane.partitions p
SET doubted_until_ms = greatest(p.doubted_until_ms,
                                least(u.id_ms, (extract(epoch FROM coalesce($3, clock_timestamp())) * 1000)::bigint + 60000))
FROM unnest($1::bigint[], $2::bigint[]) u(id, id_ms) WHERE p.id = u.id;

-- name: due
SELECT * FROM fairlane.due_scheduled($1, $2, $3);

-- name: options
SELECT q.id, q.options::text AS options FROM fairlane.queues q WHERE q.id = ANY ($1);

-- name: ensure_partition (steps)
SELECT b.id, b.name FROM fairlane.ensure_partitions(ARRAY[$1::bigint], ARRAY[$2::text], true, $3) b;

-- name: proceed
SELECT fairlane.proceed_scheduled($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
