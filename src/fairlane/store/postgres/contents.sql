-- name: active
SELECT p.shard, p.id, p.queue_id, p.name::text, p.last_at FROM fairlane.partitions p
WHERE p.shard = ANY ($1) AND p.queue_id = ANY ($2) AND p.head > p.start AND p.last_at >= $3
  AND ($4::text IS NULL OR p.name = $4)
  AND ($5::timestamptz IS NULL OR (p.last_at, p.shard, p.id) < ($5, $6::int, $7::bigint))
ORDER BY p.last_at DESC, p.shard DESC, p.id DESC LIMIT $8;

-- name: back
SELECT b.item, b.pos, b.at, b.head FROM fairlane.back($1, $2, $3, $4, $5, $6, $7) b;

-- name: delete
SELECT fairlane.delete_message($1, $2, $3, $4, $5);

-- name: bury
SELECT fairlane.bury_message($1, $2, $3, $4, $5, $6);

-- name: clear
SELECT fairlane.clear($1, $2, $3);

-- name: trims
SELECT t.partition_id FROM fairlane.trims t WHERE t.shard = $1 LIMIT $2;

-- name: trim_segments
DELETE FROM fairlane.segments s
USING (SELECT x.partition_id, x.first_pos FROM fairlane.segments x
       JOIN fairlane.partitions p ON p.shard = x.shard AND p.id = x.partition_id
       WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND x.first_pos < p.start AND x.first_pos + x.n <= p.start LIMIT $3) d
WHERE s.shard = $1 AND s.partition_id = d.partition_id AND s.first_pos = d.first_pos;

-- name: trim_results
DELETE FROM fairlane.results r USING fairlane.partitions p
WHERE r.shard = $1 AND r.partition_id = ANY ($2) AND p.shard = $1 AND p.id = r.partition_id AND r.position < p.start;

-- name: hold
SELECT 1 FROM fairlane.partitions p WHERE p.shard = $1 AND p.id = ANY ($2) ORDER BY p.id FOR NO KEY UPDATE;

-- name: trimmed
DELETE FROM fairlane.trims t WHERE t.shard = $1 AND t.partition_id = ANY ($2)
  AND NOT EXISTS (SELECT 1 FROM fairlane.segments x JOIN fairlane.partitions p ON p.shard = x.shard AND p.id = x.partition_id
                  WHERE x.shard = $1 AND x.partition_id = t.partition_id AND x.first_pos < p.start
                    AND x.first_pos + x.n <= p.start);
