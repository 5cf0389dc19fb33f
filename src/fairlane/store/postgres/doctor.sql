-- Only here: checks of a PostgreSQL server by `fairlane doctor`.

-- name: role
SELECT has_database_privilege(current_database(), 'CREATE') AS creates,
       coalesce((SELECT pg_has_role(n.nspowner, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'fairlane'), true) AS owns,
       extract(epoch FROM clock_timestamp())::float AS now, pg_is_in_recovery() AS standby;

-- name: setting
SELECT current_setting($1, true);

-- name: notify
SELECT pg_notify('fairlane_doctor', '');

-- name: session
SELECT pg_backend_pid();
