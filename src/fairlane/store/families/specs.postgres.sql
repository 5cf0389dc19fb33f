-- name: record
-- The row is the lock: whoever applies the same version waits here, and finds it taken.
INSERT INTO fairlane.specs AS s
SELECT :tenant, :version, :app, :hash, :applied_by, coalesce(:now, clock_timestamp()), :source, :document
WHERE :version = 1 + (SELECT coalesce(max(x.version), 0) FROM fairlane.specs x WHERE x.tenant = :tenant)
ON CONFLICT DO NOTHING RETURNING s.applied_at;

-- name: get
SELECT s.version, s.app, s.hash, s.applied_by, s.applied_at, s.source, s.document FROM fairlane.specs s
WHERE s.tenant = :tenant AND s.version = :version;

-- name: in_force
SELECT s.version, s.app, s.hash, s.applied_by, s.applied_at, s.source, s.document FROM fairlane.specs s
WHERE s.tenant = :tenant
  AND s.version IN (SELECT max(x.version) FROM fairlane.specs x WHERE x.tenant = :tenant GROUP BY x.app)
ORDER BY s.app;

-- name: heads
SELECT s.tenant, max(s.version) FROM fairlane.specs s GROUP BY s.tenant, s.app;

-- name: versions
SELECT s.version, s.app, s.hash, s.applied_by, s.applied_at FROM fairlane.specs s
WHERE s.tenant = :tenant AND (:apps::text[] IS NULL OR s.app = ANY (:apps))
  AND (:before::bigint IS NULL OR s.version < :before)
ORDER BY s.version DESC LIMIT :limit;
