-- Only here: PostgreSQL receives a store that moves. SQLite only sends.

-- name: columns
SELECT c.relname::text AS "table", a.attname::text AS name, t.typname::text AS type,
       a.atthasdef OR a.attidentity <> '' OR NOT a.attnotnull AS optional
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relnamespace = 'fairlane'::regnamespace AND c.relkind = 'r'
ORDER BY c.relname, a.attnum

-- name: brokers
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'fairlane' AND pid <> pg_backend_pid()

-- name: begin
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL lock_timeout = '5s';
LOCK TABLE fairlane.tenants, fairlane.queues, fairlane.groups, fairlane.partitions IN ACCESS EXCLUSIVE MODE;

-- name: advance
UPDATE fairlane.catalogue SET version = version + 1

-- name: log_hashes
-- The same hash as `log_hashes` of SQLite.
SELECT s.partition_id, encode(sha256(string_agg(
           sha256(int8send(s.first_pos) || int4send(s.n) || int8send((extract(epoch FROM s.created_at) * 1000000)::bigint)
                  || s.body), ''::bytea ORDER BY s.first_pos)), 'hex')
FROM fairlane.segments s GROUP BY s.partition_id ORDER BY s.partition_id

-- name: lanes
SELECT c.partition_id, c.group_id, c.committed, c.claimed, c.parked::int, c.failing::int, c.dead, c.expired
FROM fairlane.cursors c ORDER BY c.partition_id, c.group_id
