-- name: active
SELECT p.shard, p.id, p.queue_id, p.name::text, p.last_at FROM fairlane.partitions p
WHERE p.shard = ANY (:shards) AND p.queue_id = ANY (:queue_ids) AND p.head > p.start AND p.last_at >= :since
  AND (:name::text IS NULL OR p.name = :name)
  AND (:before_at::timestamptz IS NULL OR (p.last_at, p.shard, p.id) < (:before_at, :before_shard::int, :before_id::bigint))
ORDER BY p.last_at DESC, p.shard DESC, p.id DESC LIMIT :limit;

-- name: back (steps)
SELECT b.item, b.pos, b.at, b.head FROM fairlane.back(:shard, :ids, :until, :below, :since, :limit, :bytes) b;

-- name: delete (steps)
SELECT fairlane.delete_message(:shard, :partition_id, :position, :transaction_id, :now);

-- name: dead_letter (steps)
SELECT CASE fairlane.dead_letter_message(:shard, :partition_id, :group_id, :position, :error, :now)
       WHEN 'd' THEN 'dead' WHEN 'f' THEN 'finished' ELSE 'gone' END;

-- name: lock_scheduled (lock)
-- Who appends what is due holds segments before queues and partitions. :partition_id 0 means all partitions.
SELECT count(*) FROM (
    SELECT 1 FROM fairlane.scheduled_segments b
    WHERE b.shard = :shard AND b.partition_id = ANY (ARRAY(
        SELECT p.id FROM fairlane.partitions p
        WHERE p.shard = :shard AND p.queue_id = :queue_id AND :partition_id::bigint IN (0, p.id)))
    ORDER BY b.id FOR UPDATE) x;

-- name: clear
SELECT fairlane.clear(:shard, :queue_id, :partition_id);

-- name: traced
SELECT t.shard, t.partition_id, t.position, p.queue_id, p.name::text FROM fairlane.traced t
JOIN fairlane.partitions p ON p.shard = t.shard AND p.id = t.partition_id
WHERE t.shard = :shard AND t.trace_id = :trace_id::text::uuid AND t.position >= p.start AND p.queue_id = ANY (:queue_ids)
LIMIT :limit;

-- name: with_id (steps)
-- By the ids that are remembered, and by the time inside a UUIDv7.
SELECT p.shard, p.id, k.position, p.queue_id, p.name::text FROM fairlane.partitions p
CROSS JOIN LATERAL (SELECT m.position FROM fairlane.message_keys m
                    WHERE m.shard = :shard AND m.partition_id = p.id AND m.key = ANY (:keys)
                      AND m.transaction_id = :transaction_id) k
WHERE p.shard = :shard AND p.queue_id = ANY (:queue_ids) AND k.position >= p.start
UNION ALL
SELECT p.shard, p.id, s.first_pos + u.ord - 1, p.queue_id, p.name::text FROM fairlane.partitions p
CROSS JOIN LATERAL (SELECT x.first_pos, x.keys FROM fairlane.segments x
                    WHERE x.shard = :shard AND x.partition_id = p.id AND x.keys && :keys
                      AND x.first_pos >= fairlane.position_at(:shard, p.id, :since)
                      AND x.first_pos < fairlane.position_at(:shard, p.id, :until)) s
CROSS JOIN LATERAL unnest(s.keys) WITH ORDINALITY u(key, ord)
WHERE p.shard = :shard AND p.queue_id = ANY (:queue_ids) AND p.last_at >= :since AND p.created_at <= :until
  AND u.key = ANY (:keys) AND s.first_pos + u.ord > p.start;

-- name: trim (steps)
SELECT fairlane.trim(:shard, :limit, :now);

-- name: forget_ids (steps)
SELECT fairlane.forget_ids(:shard, :limit, :now);
