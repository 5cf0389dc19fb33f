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

-- name: patient
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;

-- name: one_import
-- One import at a time, so that two of them cannot create the same queue.
SELECT pg_advisory_xact_lock(7164242);

-- name: next_ids
SELECT nextval(pg_get_serial_sequence($1, 'id')) FROM generate_series(1, $2::int)

-- name: measure
UPDATE fairlane.partitions p SET message_bytes_max = greatest(p.message_bytes_max, m.largest)
FROM (SELECT i.id, max(i.largest) AS largest FROM unnest($1::bigint[], $2::int[]) i(id, largest) GROUP BY i.id) m
WHERE p.id = m.id

-- name: announce
-- Makes running brokers load what changed.
WITH last AS (UPDATE fairlane.catalogue c SET version = c.version + cardinality($1::bigint[]) RETURNING c.version)
INSERT INTO fairlane.catalogue_changes (version, queue_id)
SELECT last.version - cardinality($1) + x.i, x.id FROM last, unnest($1::bigint[]) WITH ORDINALITY x(id, i)
