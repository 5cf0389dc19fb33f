-- name: push (steps)
-- Numbers travel as text: the driver takes a third of a microsecond for each element of an array.
SELECT * FROM fairlane.push($1, $2::text::bigint[], $3::text::bigint[], $4::text::bigint[], $5::text::int[], $6::text::int[],
                            $7::text::bigint[], $8::text::bigint[], $9::text::bigint[], $10::text::int[], $11::text::bigint[],
                            $12::text::bigint[], $13::text::int[], $14::text::int[], $15::text::int[], $16::text::int[],
                            $17::text::bigint[], $18, $19, $20, $21, $22);

-- name: pop (steps)
SELECT * FROM fairlane.pop($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: ack (steps)
SELECT * FROM fairlane.ack($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21);

-- name: expiring
SELECT q.id, g.id FROM fairlane.queues q JOIN fairlane.groups g ON g.queue_id = q.id
WHERE greatest((q.options ->> 'ttl_seconds')::int, (q.options ->> 'max_wait_seconds')::int) > 0;

-- name: ack_unordered (steps)
SELECT * FROM fairlane.ack_unordered($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- name: renew
SELECT * FROM fairlane.renew($1, $2, $3, $4, $5);

-- name: release
SELECT fairlane.release($1, $2, $3, $4, $5);

-- name: leased
SELECT k.partition_id, k.lease_start, k.lease_end, k.committed, k.ready_at FROM fairlane.cursors k
WHERE k.shard = $1 AND k.group_id = $2 AND k.ready_at > coalesce($4, clock_timestamp())
  AND k.ready_at < fairlane.never() AND k.lease = $3
UNION ALL
SELECT c.partition_id, c.first_pos, c.upto, c.first_pos, c.ends_at FROM fairlane.claims c
WHERE c.shard = $1 AND c.group_id = $2 AND c.ends_at > coalesce($4, clock_timestamp()) AND c.token = $3
UNION ALL
SELECT f.partition_id, f.position, f.position + 1, f.position, f.due_at FROM fairlane.failures f
WHERE f.shard = $1 AND f.group_id = $2 AND f.due_at > coalesce($4, clock_timestamp()) AND f.token = $3
ORDER BY 1, 2;

-- name: segments_between
SELECT s.first_pos, s.created_at, s.ends, s.body, s.checksum FROM fairlane.segments s
WHERE s.shard = $1 AND s.partition_id = $2 AND s.first_pos < $4
  AND s.first_pos + s.n > (SELECT p.start FROM fairlane.partitions p WHERE p.shard = $1 AND p.id = $2)
  AND s.first_pos >= coalesce((SELECT max(f.first_pos) FROM fairlane.segments f
                               WHERE f.shard = $1 AND f.partition_id = $2 AND f.first_pos <= $3), $3)
ORDER BY s.first_pos;

-- name: find_key (in key_positions)
SELECT k.position FROM fairlane.message_keys k
WHERE k.shard = $1 AND k.partition_id = $2 AND k.key = ANY ($3) AND k.transaction_id = $4
  AND CASE WHEN $5 THEN fairlane.is_known($1, $2, k.position) ELSE fairlane.is_there($1, $2, k.position) END;

-- name: find_deleted (in between)
SELECT d.pos FROM fairlane.deleted_matches($1, $2, $5, $6, $3) d
WHERE d.transaction_id = $4 AND fairlane.is_known($1, $2, d.pos);

-- name: find_segments (in keys_backward)
SELECT s.first_pos, s.created_at, s.ends, s.body, s.checksum,
       ARRAY(SELECT x.position FROM fairlane.skips x WHERE x.shard = $1 AND x.partition_id = $2
             AND x.position >= s.first_pos AND x.position < s.first_pos + s.n AND x.group_id = 0)
FROM fairlane.segments s
WHERE s.shard = $1 AND s.partition_id = $2 AND s.keys && $3
  AND s.first_pos >= fairlane.position_at($1, $2, $4) AND s.first_pos < fairlane.position_at($1, $2, $5)
ORDER BY s.first_pos DESC;

-- name: add_traced
INSERT INTO fairlane.traced (shard, trace_id, partition_id, position)
SELECT $1, u.trace_id, u.partition_id, u.position FROM unnest($2::uuid[], $3::bigint[], $4::bigint[]) u(trace_id, partition_id, position)
ON CONFLICT DO NOTHING;

-- name: lock_queues (lock)
SELECT q.id FROM fairlane.queues q WHERE q.id = ANY ($1) ORDER BY q.id FOR UPDATE;

-- name: lock_partitions (lock)
SELECT p.id FROM fairlane.partitions p WHERE p.shard = $1 AND p.id = ANY ($2) ORDER BY p.id FOR NO KEY UPDATE;

-- name: limited_queues (steps)
SELECT fairlane.limited_queues($1, $2);
