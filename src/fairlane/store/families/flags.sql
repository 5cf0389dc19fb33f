-- name: enabled
SELECT f.name FROM fairlane.flags f WHERE f.enabled

-- name: set
INSERT INTO fairlane.flags (name, enabled, changed_at) VALUES (:name, :on, coalesce(:now, clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled, changed_at = excluded.changed_at
