-- part: key
id, tenant, name, role, scopes, hash, old_hash, old_until, created_at, created_by, expires_at, used_at, revoked_at

-- name: add
INSERT INTO fairlane.api_keys (id, tenant, name, role, scopes, hash, created_at, created_by, expires_at)
VALUES (:id, :tenant, :name, :role, :scopes, :hash, coalesce(:now, clock_timestamp()), :created_by, :expires_at)
ON CONFLICT (tenant, name) WHERE revoked_at IS NULL DO NOTHING
RETURNING id

-- name: count
SELECT count(*) FROM fairlane.api_keys

-- name: load
SELECT {key} FROM fairlane.api_keys k WHERE k.revoked_at IS NULL

-- name: all
SELECT {key} FROM fairlane.api_keys k WHERE k.tenant = :tenant ORDER BY k.created_at, k.id

-- name: get
SELECT {key} FROM fairlane.api_keys k
WHERE k.tenant = :tenant AND (k.id = :named OR (k.name = :named AND k.revoked_at IS NULL))
ORDER BY k.id <> :named LIMIT 1

-- name: revoke
UPDATE fairlane.api_keys AS k SET revoked_at = coalesce(k.revoked_at, coalesce(:now, clock_timestamp()))
WHERE k.tenant = :tenant AND k.id = :id
RETURNING {key}

-- name: rotate
UPDATE fairlane.api_keys AS k
SET old_hash = k.hash, hash = :hash, old_until = coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds)
WHERE k.tenant = :tenant AND k.id = :id AND k.revoked_at IS NULL
RETURNING {key}

-- name: mark_used
UPDATE fairlane.api_keys AS k SET used_at = coalesce(:now, clock_timestamp())
WHERE k.id = ANY (:ids)
