-- name: add
INSERT INTO fairlane.sessions (hash, tenant, owner, key_hash, caller, created_at, expires_at)
VALUES (:hash, :tenant, :owner, :key_hash, :caller, coalesce(:now, clock_timestamp()), :expires_at)

-- name: forget
DELETE FROM fairlane.sessions AS s WHERE s.expires_at <= coalesce(:now, clock_timestamp()) OR s.hash IN (
    SELECT o.hash FROM fairlane.sessions o WHERE o.tenant = :tenant AND o.owner = :owner
    ORDER BY o.created_at DESC, o.hash LIMIT 1000000 OFFSET :keep)

-- name: load
SELECT s.hash, s.tenant, s.owner, s.key_hash, s.caller, s.expires_at FROM fairlane.sessions s
WHERE s.expires_at > coalesce(:now, clock_timestamp())

-- name: end
DELETE FROM fairlane.sessions AS s WHERE s.hash = :hash RETURNING hash
