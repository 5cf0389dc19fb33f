-- name: beat
INSERT INTO fairlane.workers (tenant, id, facts, seen_at)
VALUES (:tenant, :id, :facts, coalesce(:now, clock_timestamp()))
ON CONFLICT (tenant, id) DO UPDATE SET facts = excluded.facts, seen_at = excluded.seen_at

-- name: forget
DELETE FROM fairlane.workers AS w WHERE w.seen_at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)

-- name: all
SELECT w.id, w.facts, w.seen_at FROM fairlane.workers w
WHERE w.tenant = :tenant AND w.seen_at >= coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
ORDER BY w.id

-- name: deregister
DELETE FROM fairlane.workers AS w WHERE w.tenant = :tenant AND w.id = :id RETURNING id
