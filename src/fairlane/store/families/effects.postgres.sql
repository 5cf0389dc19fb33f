-- name: get
SELECT e.value FROM fairlane.effects e
WHERE e.shard = :shard AND e.tenant = :tenant AND e.partition_id = :partition_id AND e.key = :key
  AND e.kept_until > coalesce(:now, clock_timestamp());

-- name: forget
-- Unlike SQLite's writer, brokers forget side by side: each takes other rows than its neighbours.
DELETE FROM fairlane.effects e WHERE e.shard = :shard AND (e.tenant, e.partition_id, e.key) IN (
    SELECT o.tenant, o.partition_id, o.key FROM fairlane.effects o
    WHERE o.shard = :shard AND o.kept_until <= coalesce(:now, clock_timestamp())
    LIMIT 100 FOR UPDATE SKIP LOCKED
);

-- name: keep
-- The update of a row that stays as it is gives back the one that is there, also when it was put there meanwhile.
INSERT INTO fairlane.effects AS e (shard, tenant, partition_id, key, value, kept_until)
VALUES (:shard, :tenant, :partition_id, :key, :value, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds))
ON CONFLICT (shard, tenant, partition_id, key) DO UPDATE SET
    value = CASE WHEN e.kept_until > coalesce(:now, clock_timestamp()) THEN e.value ELSE excluded.value END,
    kept_until = greatest(e.kept_until, excluded.kept_until)
RETURNING e.value;
