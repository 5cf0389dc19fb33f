-- name: check (only here: no other program may write an SQLite file)
SELECT EXISTS (SELECT 1 FROM fairlane.staged), EXISTS (SELECT 1 FROM fairlane.enqueue_grants);

-- name: open (only here: no other program may write an SQLite file)
SELECT * FROM fairlane.open_staged($1, $2, $3, $4, $5, $6, $7, $8);

-- name: delete (only here: no other program may write an SQLite file)
SELECT fairlane.delete_staged($1, $2, $3, $4);

-- name: refuse (only here: no other program may write an SQLite file)
SELECT fairlane.refuse_staged($1, $2, $3, $4, $5);

-- name: by_queue (only here: no other program may write an SQLite file)
SELECT * FROM fairlane.staged_by_queue($1, $2);

-- name: tenant (only here: no other program may write an SQLite file)
SELECT n.id FROM fairlane.tenants n WHERE n.name = $1;

-- name: role (only here: no other program may write an SQLite file)
SELECT 1 FROM pg_catalog.pg_roles r WHERE r.rolname = $1;

-- name: lock_grants (only here: no other program may write an SQLite file)
LOCK TABLE fairlane.enqueue_grants IN SHARE ROW EXCLUSIVE MODE;

-- name: grant (only here: no other program may write an SQLite file)
INSERT INTO fairlane.enqueue_grants (role_name, tenant, queue, tenant_id, sealed)
VALUES ($1, $2, $3, $4, EXISTS (SELECT 1 FROM fairlane.sealed_queues)) ON CONFLICT (role_name, tenant, queue) DO NOTHING;

-- name: revoke (only here: no other program may write an SQLite file)
DELETE FROM fairlane.enqueue_grants g WHERE g.role_name = $1 AND g.tenant = $2 AND g.queue = $3 RETURNING 1;

-- name: is_granted (only here: no other program may write an SQLite file)
SELECT EXISTS (SELECT 1 FROM fairlane.enqueue_grants g WHERE g.role_name = $1);

-- name: grants (only here: no other program may write an SQLite file)
SELECT g.role_name, g.tenant, g.queue FROM fairlane.enqueue_grants g ORDER BY g.role_name, g.tenant, g.queue;

-- name: sealed (only here: no other program may write an SQLite file)
SELECT s.pattern FROM fairlane.sealed_queues s;

-- name: unseal (only here: no other program may write an SQLite file)
DELETE FROM fairlane.sealed_queues s WHERE s.pattern <> ALL ($1);

-- name: seal (only here: no other program may write an SQLite file)
INSERT INTO fairlane.sealed_queues (pattern) SELECT p.pattern FROM unnest($1::text[]) p(pattern)
ON CONFLICT (pattern) DO NOTHING;

-- name: note_sealed (only here: no other program may write an SQLite file)
UPDATE fairlane.enqueue_grants SET sealed = EXISTS (SELECT 1 FROM fairlane.sealed_queues);

-- name: schema (only here: no other program may write an SQLite file)
SELECT c.relnamespace::regnamespace::text FROM pg_catalog.pg_class c WHERE c.oid = 'fairlane.staged'::regclass;
