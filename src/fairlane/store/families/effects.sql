-- name: get
SELECT e.value FROM fairlane.effects e
WHERE e.tenant = :tenant AND e.partition_id = :partition_id AND e.key = :key
  AND e.kept_until > coalesce(:now, clock_timestamp())

-- name: forget (postgres)
-- Brokers run this at the same time, so each skips the rows that another one is deleting.
WITH o AS MATERIALIZED (
    SELECT x.tenant, x.partition_id, x.key FROM fairlane.effects x
    WHERE x.kept_until <= coalesce(:now, clock_timestamp())
    LIMIT 100 FOR UPDATE SKIP LOCKED
)
DELETE FROM fairlane.effects e USING o WHERE e.tenant = o.tenant AND e.partition_id = o.partition_id AND e.key = o.key

-- name: forget (sqlite)
delete from effects where (tenant, partition_id, key) in (
    select tenant, partition_id, key from effects where kept_until <= :now limit 100
)

-- name: keep
-- DO UPDATE, even if it changes nothing, because RETURNING leaves out a row that DO NOTHING skipped.
INSERT INTO fairlane.effects AS e (tenant, partition_id, key, value, kept_until)
VALUES (:tenant, :partition_id, :key, :value, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds))
ON CONFLICT (tenant, partition_id, key) DO UPDATE SET
    value = CASE WHEN excluded.kept_until - e.kept_until < make_interval(secs => :seconds) THEN e.value ELSE excluded.value END,
    kept_until = CASE WHEN e.kept_until > excluded.kept_until THEN e.kept_until ELSE excluded.kept_until END
RETURNING value
