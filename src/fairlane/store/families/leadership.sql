-- name: lead
INSERT INTO fairlane.leadership AS l (name, token, leads_until, rests_until)
VALUES (:name, 1, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds), '-infinity')
ON CONFLICT (name) DO UPDATE SET token = l.token + 1, leads_until = excluded.leads_until
WHERE l.leads_until <= coalesce(:now, clock_timestamp())
  AND (:early OR l.rests_until <= coalesce(:now, clock_timestamp()))
RETURNING token

-- name: take
INSERT INTO fairlane.leadership AS l (name, token, leads_until, rests_until)
VALUES (:name, :token, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds), '-infinity')
ON CONFLICT (name) DO UPDATE SET token = excluded.token, leads_until = excluded.leads_until WHERE l.token <= excluded.token
RETURNING token

-- name: keep
UPDATE fairlane.leadership AS l SET leads_until = coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds)
WHERE l.name = :name AND l.token = :token AND l.leads_until > coalesce(:now, clock_timestamp())
RETURNING token

-- name: release
UPDATE fairlane.leadership AS l
SET leads_until = '-infinity', rests_until = coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds)
WHERE l.name = :name AND l.token = :token
