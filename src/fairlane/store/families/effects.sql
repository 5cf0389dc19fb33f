-- name: get
SELECT e.value FROM fairlane.effects e
WHERE e.tenant = :tenant AND e.partition_id = :partition_id AND e.key = :key
  AND e.kept_until > coalesce(:now, clock_timestamp())

-- name: forget (postgres)
-- Unlike SQLite's writer, brokers forget side by side: each takes other rows than its neighbours.
DELETE FROM fairlane.effects e WHERE (e.tenant, e.partition_id, e.key) IN (
    SELECT o.tenant, o.partition_id, o.key FROM fairlane.effects o
    WHERE o.kept_until <= coalesce(:now, clock_timestamp())
    LIMIT 100 FOR UPDATE SKIP LOCKED
)

-- name: forget (sqlite)
delete from effects where (tenant, partition_id, key) in (
    select tenant, partition_id, key from effects where kept_until <= :now limit 100
)

-- name: keep
-- The update of a row that stays as it is gives back the one that is there, also when it was put there meanwhile.
INSERT INTO fairlane.effects AS e (tenant, partition_id, key, value, kept_until)
VALUES (:tenant, :partition_id, :key, :value, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds))
ON CONFLICT (tenant, partition_id, key) DO UPDATE SET
    value = CASE WHEN e.kept_until > coalesce(:now, clock_timestamp()) THEN e.value ELSE excluded.value END,
    kept_until = CASE WHEN e.kept_until > excluded.kept_until THEN e.kept_until ELSE excluded.kept_until END
RETURNING value
