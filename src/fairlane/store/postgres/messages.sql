-- name: push (steps)
-- Numbers travel as text, because the driver takes a third of a microsecond for each element of an array.
SELECT * FROM fairlane.push($1::text::bigint[], $2::text::bigint[], $3::text::bigint[], $4::text::int[], $5::text::int[],
                            $6::text::bigint[], $7::text::bigint[], $8::text::bigint[], $9::text::int[], $10::text::bigint[],
                            $11::text::bigint[], $12::text::int[], $13::text::int[], $14::text::int[], $15::text::int[],
                            $16::text::bigint[], $17, $18, $19, $20, $21);

-- name: pop (steps)
SELECT * FROM fairlane.pop($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: pop_groups (steps)
SELECT * FROM fairlane.pop_groups($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: ack (steps)
SELECT * FROM fairlane.ack($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22);

-- name: expiring
SELECT q.id, g.id FROM fairlane.queues q JOIN fairlane.groups g ON g.queue_id = q.id
WHERE greatest((q.options ->> 'ttl_seconds')::int, (q.options ->> 'max_wait_seconds')::int) > 0;

-- name: ack_unordered (steps)
SELECT * FROM fairlane.ack_unordered($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- part: no_lane
NULL AS claim, NULL AS partition_id, NULL AS name, NULL AS first, NULL AS upto, NULL AS attempts,
       NULL AS lease_ends_at, NULL AS segment_first, NULL AS created_at, NULL AS checksum, NULL AS ends, NULL AS body,
       NULL AS gone, NULL AS not_ready, NULL AS expired, NULL AS leases_lost, NULL AS dead_lettered,
       NULL AS popped_at, NULL AS next_at, NULL AS scan_from

-- name: ack_and_pop (steps)
-- The first $13 are for the pop. An append runs its parts one after another, and each statement of a function sees the changes
-- of those before it. So the pop finds the lanes that the acks released.
SELECT {no_lane}, a.*
FROM fairlane.ack($14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33,
                   $34, $35) a
UNION ALL
SELECT p.*, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM fairlane.pop($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) p;

-- name: ack_and_pop_groups (steps)
SELECT NULL AS grp, NULL AS claim, NULL AS partition_id, NULL AS name, NULL AS first, NULL AS upto, NULL AS lease_ends_at,
       NULL AS segment_first, NULL AS created_at, NULL AS checksum, NULL AS ends, NULL AS body, NULL AS plain,
       NULL AS popped_at, NULL AS next_at, NULL AS scan_from, a.*
FROM fairlane.ack($15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34,
                   $35, $36) a
UNION ALL
SELECT p.*, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM fairlane.pop_groups($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) p;

-- name: ack_unordered_and_pop (steps)
SELECT {no_lane}, a.*
FROM fairlane.ack_unordered($14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28) a
UNION ALL
SELECT p.*, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM fairlane.pop($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) p;

-- name: cancelled (in within)
-- By lane: a plan that was made for a nearly empty table would scan it.
SELECT u.i, array_agg(DISTINCT c.position ORDER BY c.position)
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) u(i, partition_id, group_id, first, upto)
CROSS JOIN LATERAL (
    SELECT x.position FROM fairlane.cancellations x
    WHERE x.partition_id = u.partition_id AND x.group_id = u.group_id AND x.position >= u.first AND x.position < u.upto) c
GROUP BY u.i;

-- name: renew
SELECT * FROM fairlane.renew($1, $2, $3, $4);

-- name: release
SELECT fairlane.release($1, $2, $3, $4);

-- name: leased
SELECT k.partition_id, k.lease_start, k.lease_end, k.committed, k.ready_at FROM fairlane.cursors k
WHERE k.group_id = $1 AND k.ready_at > coalesce($3, clock_timestamp())
  AND k.ready_at < fairlane.never() AND k.lease = $2
UNION ALL
SELECT c.partition_id, c.first_pos, c.upto, c.first_pos, c.ends_at FROM fairlane.claims c
WHERE c.group_id = $1 AND c.ends_at > coalesce($3, clock_timestamp()) AND c.token = $2
UNION ALL
SELECT f.partition_id, f.position, f.position + 1, f.position, f.due_at FROM fairlane.failures f
WHERE f.group_id = $1 AND f.due_at > coalesce($3, clock_timestamp()) AND f.token = $2
ORDER BY 1, 2;

-- name: segments_between
SELECT s.first_pos, s.created_at, s.ends, s.body, s.checksum FROM fairlane.segments s
WHERE s.partition_id = $1 AND s.first_pos < $3
  AND s.first_pos + s.n > (SELECT p.start FROM fairlane.partitions p WHERE p.id = $1)
  AND s.first_pos >= coalesce((SELECT max(f.first_pos) FROM fairlane.segments f
                               WHERE f.partition_id = $1 AND f.first_pos <= $2), $2)
ORDER BY s.first_pos;

-- name: find_key (in key_positions)
SELECT k.position FROM fairlane.message_keys k
WHERE k.partition_id = $1 AND k.key = ANY ($2) AND k.transaction_id = $3
  AND CASE WHEN $4 THEN fairlane.is_known($1, k.position) ELSE fairlane.has_message($1, k.position) END;

-- name: find_deleted (in between)
SELECT d.pos FROM fairlane.deleted_matches($1, $4, $5, $2) d
WHERE d.transaction_id = $3 AND fairlane.is_known($1, d.pos);

-- name: find_segments (in keys_backward)
SELECT s.first_pos, s.created_at, s.ends, s.body, s.checksum,
       ARRAY(SELECT x.position FROM fairlane.skips x WHERE x.partition_id = $1
             AND x.position >= s.first_pos AND x.position < s.first_pos + s.n AND x.group_id = 0)
FROM fairlane.segments s
WHERE s.partition_id = $1 AND s.keys && $2
  AND s.first_pos >= fairlane.position_at($1, $3) AND s.first_pos < fairlane.position_at($1, $4)
ORDER BY s.first_pos DESC;

-- name: add_traced
INSERT INTO fairlane.traced (trace_id, partition_id, position)
SELECT u.trace_id, u.partition_id, u.position FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) u(trace_id, partition_id, position)
ON CONFLICT DO NOTHING;

-- name: lock_queues (lock)
SELECT q.id FROM fairlane.queues q WHERE q.id = ANY ($1) ORDER BY q.id FOR UPDATE;

-- name: lock_partitions (lock)
SELECT p.id FROM fairlane.partitions p WHERE p.id = ANY ($1) ORDER BY p.id FOR NO KEY UPDATE;

-- name: limited_queues (steps)
SELECT fairlane.limited_queues($1);
