-- name: record
-- The row is the lock. A concurrent apply of the same version waits here, then finds it taken.
INSERT INTO fairlane.specs AS s
SELECT :tenant, :version, :app, :hash, :applied_by, coalesce(:now, clock_timestamp()), :source, :document
WHERE :version = 1 + (SELECT coalesce(max(x.version), 0) FROM fairlane.specs x WHERE x.tenant = :tenant)
ON CONFLICT DO NOTHING RETURNING applied_at

-- name: declare (postgres)
WITH gone AS (
    DELETE FROM fairlane.declared_queues d WHERE d.tenant = :tenant AND d.app = :app AND NOT d.name = ANY (:names)
)
INSERT INTO fairlane.declared_queues AS d
SELECT :tenant, w.name, :app, w.options::jsonb, w.mapped
FROM unnest(:names::text[], :options::text[], :mapped::bool[]) w(name, options, mapped)
ON CONFLICT (tenant, name) DO UPDATE SET options = excluded.options, mapped = excluded.mapped

-- name: declare (sqlite)
delete from declared_queues where tenant = :tenant and app = :app;
insert into declared_queues
select :tenant, n.value, :app, :options ->> n.key, :mapped ->> n.key from json_each(:names) n

-- name: get
SELECT s.version, s.app, s.hash, s.applied_by, s.applied_at, s.source, s.document FROM fairlane.specs s
WHERE s.tenant = :tenant AND s.version = :version

-- name: in_force
SELECT s.version, s.app, s.hash, s.applied_by, s.applied_at, s.source, s.document FROM fairlane.specs s
WHERE s.tenant = :tenant
  AND s.version IN (SELECT max(x.version) FROM fairlane.specs x WHERE x.tenant = :tenant GROUP BY x.app)
ORDER BY s.app

-- name: heads
SELECT s.tenant, max(s.version) FROM fairlane.specs s GROUP BY s.tenant, s.app

-- name: versions
SELECT s.version, s.app, s.hash, s.applied_by, s.applied_at FROM fairlane.specs s
WHERE s.tenant = :tenant AND (:apps::text[] IS NULL OR s.app = ANY (:apps))
  AND (:before::bigint IS NULL OR s.version < :before)
ORDER BY s.version DESC LIMIT :limit
