-- part: entry
e.number, e.at, e.tenant, e.caller, e.action, e.target, e.outcome, e.source, e.began, e.hash, e.previous

-- name: lock (postgres, lock)
SELECT h.number FROM fairlane.audit_head h FOR UPDATE

-- name: head
SELECT h.number, h.hash, coalesce(:now, clock_timestamp()) FROM fairlane.audit_head h

-- name: end
SELECT e.number FROM fairlane.audit_entries e WHERE e.began = :began

-- name: add
INSERT INTO fairlane.audit_entries (number, at, tenant, caller, action, target, outcome, source, began, hash, previous)
VALUES (:number, :at, :tenant, :caller, :action, :target, :outcome, :source, :began, :hash, :previous)

-- name: set_head
UPDATE fairlane.audit_head AS h SET number = :number, hash = :hash

-- name: page
SELECT {entry}, o.outcome, o.at FROM fairlane.audit_entries e
LEFT JOIN fairlane.audit_entries o ON o.began = e.number
WHERE e.number < :before AND e.began IS NULL AND (:tenant::text IS NULL OR e.tenant = :tenant)
  AND (:search::text IS NULL OR strpos(lower(e.caller || ' ' || e.action || ' ' || e.target), lower(:search)) > 0)
ORDER BY e.number DESC LIMIT :limit

-- name: after
SELECT {entry} FROM fairlane.audit_entries e WHERE e.number > :number ORDER BY e.number LIMIT :limit

-- name: forget
WITH oldest AS (SELECT x.number, x.at FROM fairlane.audit_entries x ORDER BY x.number LIMIT :limit + 1)
DELETE FROM fairlane.audit_entries AS e WHERE e.number < coalesce(
    (SELECT min(o.number) - 1 FROM oldest o WHERE o.at >= coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)),
    (SELECT max(o.number) FROM oldest o))
RETURNING number
