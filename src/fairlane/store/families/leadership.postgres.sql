-- name: lead
INSERT INTO fairlane.services AS s (name, token, leads_until, rests_until)
VALUES (:name, 1, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds), '-infinity')
ON CONFLICT (name) DO UPDATE SET token = s.token + 1, leads_until = excluded.leads_until
WHERE s.leads_until <= coalesce(:now, clock_timestamp())
  AND (:early OR s.rests_until <= coalesce(:now, clock_timestamp()))
RETURNING s.token;

-- name: keep
UPDATE fairlane.services s SET leads_until = coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds)
WHERE s.name = :name AND s.token = :token AND s.leads_until > coalesce(:now, clock_timestamp())
RETURNING s.token;

-- name: rest
UPDATE fairlane.services s
SET leads_until = '-infinity', rests_until = coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds)
WHERE s.name = :name AND s.token = :token;
