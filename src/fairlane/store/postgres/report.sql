-- Only here: statistics of PostgreSQL; SQLite reports them by pragmas.

-- name: database
SELECT current_setting('server_version') AS version, pg_database_size(current_database()) AS bytes, d.numbackends AS connections,
       d.xact_commit AS commits, d.xact_rollback AS rollbacks, d.deadlocks, d.blks_hit AS "blocksHit",
       d.blks_read AS "blocksRead",
       round(100.0 * d.blks_hit / nullif(d.blks_hit + d.blks_read, 0), 2)::float AS "cacheHitPercent"
FROM pg_stat_database d WHERE d.datname = current_database();

-- name: tables
SELECT t.relname AS name, pg_total_relation_size(t.relid) AS bytes, pg_indexes_size(t.relid) AS "indexBytes",
       t.n_live_tup AS "liveRows", t.n_dead_tup AS "deadRows", t.n_tup_upd AS updates, t.n_tup_hot_upd AS "hotUpdates",
       extract(epoch FROM greatest(t.last_vacuum, t.last_autovacuum))::bigint AS "vacuumedAt"
FROM pg_stat_user_tables t WHERE t.schemaname = 'fairlane' ORDER BY 2 DESC, 1;

-- name: activity
SELECT coalesce(a.state, 'unknown') AS state, count(*) AS connections,
       coalesce(max(extract(epoch FROM clock_timestamp() - a.xact_start)), 0)::float AS "oldestTransactionSeconds"
FROM pg_stat_activity a WHERE a.datname = current_database() GROUP BY 1 ORDER BY 1;

-- name: oldest_transaction
SELECT a.pid, a.application_name AS application, a.state,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float AS seconds
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.xact_start IS NOT NULL
  AND a.application_name <> 'fairlane'
ORDER BY a.xact_start LIMIT 1;
