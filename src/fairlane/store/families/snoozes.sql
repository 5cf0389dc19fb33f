-- name: all
SELECT s.key, s.until, s.caller, s.severity, s.count FROM fairlane.snoozes s
WHERE s.tenant = :tenant AND s.until > coalesce(:now, clock_timestamp()) ORDER BY s.key

-- name: set
INSERT INTO fairlane.snoozes (tenant, key, until, caller, severity, count)
VALUES (:tenant, :key, :until, :caller, :severity, :count)
ON CONFLICT (tenant, key) DO UPDATE
SET until = excluded.until, caller = excluded.caller, severity = excluded.severity, count = excluded.count

-- name: end
DELETE FROM fairlane.snoozes AS s WHERE s.tenant = :tenant AND s.key = :key RETURNING key

-- name: forget
DELETE FROM fairlane.snoozes AS s WHERE s.until <= coalesce(:now, clock_timestamp())
