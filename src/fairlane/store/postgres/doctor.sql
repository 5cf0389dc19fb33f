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

-- name: replicas
SELECT current_setting('synchronous_standby_names') AS names, current_setting('synchronous_commit') AS waits,
       count(*) AS standbys, count(*) FILTER (WHERE r.sync_state IN ('sync', 'quorum')) AS synchronous,
       count(*) FILTER (WHERE r.state IS NULL) AS hidden,
       max(pg_wal_lsn_diff(pg_current_wal_lsn(), r.flush_lsn))::bigint AS behind
FROM pg_stat_replication r WHERE coalesce(r.state, 'streaming') IN ('streaming', 'catchup');

-- name: idle_slots
SELECT s.slot_name AS name, pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint AS bytes
FROM pg_replication_slots s
WHERE NOT s.active AND pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) > $1 ORDER BY 2 DESC;

-- name: connections
SELECT current_setting('max_connections')::int AS allowed,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) - sum(d.numbackends)::int AS free
FROM pg_stat_database d;

-- name: vacuum
SELECT CASE WHEN current_setting('track_counts') = 'on' THEN current_setting('autovacuum') ELSE 'off' END AS setting,
       t.relid::regclass::text AS name, t.n_dead_tup AS dead, t.n_live_tup AS live
FROM (VALUES (1)) one LEFT JOIN pg_stat_user_tables t ON t.schemaname = 'fairlane'
ORDER BY t.n_dead_tup DESC NULLS LAST LIMIT 1;

-- name: data_directory
SELECT (SELECT s.setting FROM pg_settings s WHERE s.name = 'data_directory') AS directory,
       coalesce(inet_server_addr() <<= '127.0.0.0/8' OR inet_server_addr() = '::1', true) AS local;
