-- name: change (steps)
SELECT fairlane.change_scheduled(:shard, :partition_id, :keys, :id_ms, :transaction_id, :move, :due_at, :delay_ms, :new_id, :now);

-- name: list
WITH found AS MATERIALIZED (
    SELECT b.id, d.at, d.i
    FROM fairlane.scheduled_segments b
    JOIN fairlane.scheduled_messages m ON m.shard = b.shard AND m.id = b.id
    CROSS JOIN LATERAL unnest(m.due) WITH ORDINALITY d(at, i)
    WHERE b.shard = :shard AND b.queue_id = :queue_id AND b.last_at >= fairlane.at_us(:after_at) AND d.i > b.taken
      AND (d.at > :after_at OR d.at = :after_at AND encode(substring(m.body FROM coalesce(m.ends[d.i - 1], 0) + 8 FOR 36), 'escape') > :after_id))
SELECT b.partition_id, b.partition_name::text, substring(m.body FROM coalesce(m.ends[f.i - 1], 0) + 1 FOR 2200) AS head, f.at
FROM found f
JOIN fairlane.scheduled_segments b ON b.shard = :shard AND b.id = f.id
JOIN fairlane.scheduled_messages m ON m.shard = :shard AND m.id = f.id
WHERE f.at <= coalesce((SELECT l.at FROM found l ORDER BY l.at LIMIT 1 OFFSET :limit - 1), f.at)
ORDER BY f.at, substring(m.body FROM coalesce(m.ends[f.i - 1], 0) + 8 FOR 36)
LIMIT :limit;

-- name: next_at
SELECT min(b.next_at) AS next_at, coalesce(:now, clock_timestamp()) AS now FROM fairlane.scheduled_segments b WHERE b.shard = :shard;
