-- Only here: moves of queues between cells. SQLite is always one cell.

-- part: copied
x.term, x.queue_id, x.tenant, x.queue, x.source, x.target, x.copied, x.total, x.began_at

-- name: lock
-- Held by a transaction without a snapshot, so that a second mover is refused while this one lives.
SELECT pg_try_advisory_xact_lock(7018969, hashtext($1));

-- name: stay
-- The session is idle until the move ends.
SET LOCAL idle_in_transaction_session_timeout = 0;

-- name: sent
SELECT 1 FROM fairlane.placed p
WHERE p.tenant = $1 AND p.queue = $2 AND p.cell = $4 AND NOT EXISTS (SELECT FROM fairlane.queues q WHERE q.id = $3);

-- name: declared
SELECT d.app, d.options::text, d.mapped FROM fairlane.declared_queues d WHERE d.tenant = $1 AND d.name = $2;

-- name: declare
INSERT INTO fairlane.declared_queues (tenant, name, app, options, mapped) VALUES ($1, $2, $3, $4::text::jsonb, $5)
ON CONFLICT (tenant, name) DO UPDATE SET app = excluded.app, options = excluded.options, mapped = excluded.mapped;

-- name: all
SELECT {copied} FROM fairlane.moves x ORDER BY x.began_at;

-- name: named
SELECT {copied} FROM fairlane.moves x WHERE x.tenant = $1 AND x.queue = $2;

-- name: begin
INSERT INTO fairlane.moves AS x (queue_id, tenant, queue, source, target, began_at)
SELECT $1, $2, $3, $4, c.cell, clock_timestamp() FROM fairlane.cells c WHERE c.cell = $5 AND c.state = 'open' FOR SHARE
ON CONFLICT (queue_id) DO NOTHING RETURNING {copied};

-- name: take_over
UPDATE fairlane.moves AS x SET term = DEFAULT WHERE x.queue_id = $1 AND x.term = $2 RETURNING {copied};

-- name: advance
UPDATE fairlane.moves AS x SET copied = $3, total = $4 WHERE x.queue_id = $1 AND x.term = $2 RETURNING 1;

-- name: end
DELETE FROM fairlane.moves x WHERE x.queue_id = $1 AND x.term = $2 RETURNING 1;

-- name: hold_home
SELECT 1 FROM fairlane.moves x WHERE x.queue_id = $1 AND x.term = $2 FOR UPDATE;

-- name: take
SELECT fairlane.take_move($1, $2);

-- name: hold
SELECT fairlane.hold_move($1, $2);

-- name: let_go
DELETE FROM fairlane.moving m WHERE m.queue_id = $1 AND m.term <= $2;

-- name: lock_queue
SELECT fairlane.lock_to_move($1);

-- name: depart
SELECT fairlane.depart($1, $2);

-- name: forget_copy
SELECT fairlane.forget_copy($1);

-- name: purge_copy
INSERT INTO fairlane.purges (queue_id, deleted_at)
SELECT $1, clock_timestamp() WHERE EXISTS (SELECT FROM fairlane.partitions p WHERE p.queue_id = $1)
ON CONFLICT (queue_id) DO NOTHING;

-- name: purge
SELECT fairlane.purge($1);

-- name: end_purge
DELETE FROM fairlane.purges p WHERE p.queue_id = $1;

-- name: exists
SELECT 1 FROM fairlane.queues q WHERE q.id = $1;

-- name: partners
SELECT fairlane.fan_in_partners($1);

-- name: streams
SELECT s.name FROM fairlane.stream_queries s JOIN fairlane.tenants n ON n.id = s.tenant_id
WHERE n.name = $1 AND $2 IN (s.source_queue, s.sink_queue) ORDER BY s.name LIMIT 1;

-- name: beside
-- Queues whose options name this one: as the queue beside which they were created, or for their dead letters.
SELECT q.name, q.options ->> 'dead_letter_queue' = $2 AS letters FROM fairlane.queues q JOIN fairlane.tenants n ON n.id = q.tenant_id
WHERE n.name = $1 AND q.name <> $2
  AND (q.options ->> 'cell' LIKE 'same-as %' AND btrim(substr(q.options ->> 'cell', 9)) = $2 OR q.options ->> 'dead_letter_queue' = $2)
ORDER BY q.name;

-- name: announce
-- Until they arrive, no cell has the queue and its groups, so brokers retry.
INSERT INTO fairlane.moved AS m (id, queue_id, cell, arrived) SELECT i, $1, $3, false
FROM unnest($1::bigint || ARRAY(SELECT -g FROM unnest($2::bigint[]) g)) i
ON CONFLICT (id) DO UPDATE SET cell = excluded.cell, arrived = false;

-- name: direct
UPDATE fairlane.moved m SET arrived = true WHERE m.queue_id = $1;

-- name: recall
-- Undoes `announce`.
UPDATE fairlane.moved m SET cell = $2, arrived = true WHERE m.queue_id = $1 AND NOT m.arrived;

-- name: forget_native
-- Ids of this cell's own need no row.
DELETE FROM fairlane.moved m WHERE m.queue_id = $1 AND m.arrived AND m.cell = abs(m.id) >> 45;

-- name: place
INSERT INTO fairlane.placed (tenant, queue, cell) VALUES ($1, $2, $3) ON CONFLICT (tenant, queue) DO UPDATE SET cell = excluded.cell;

-- name: unplace
DELETE FROM fairlane.placed p WHERE p.tenant = $1 AND p.queue = $2;

-- name: note
WITH c AS (UPDATE fairlane.catalogue c SET version = c.version + 1 RETURNING c.version)
INSERT INTO fairlane.catalogue_changes (version, queue_id) SELECT c.version, $1 FROM c;

-- name: groups
SELECT coalesce(array_agg(g.id), '{}') FROM fairlane.groups g WHERE g.queue_id = $1;

-- name: columns
-- Columns in the order of their tables. Keys do not include the epoch.
SELECT c.relname, a.attname, coalesce(a.attnum = ANY (i.indkey) AND a.attname <> 'epoch', false)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relkind = 'r' AND c.relnamespace = (SELECT x.relnamespace FROM pg_class x WHERE x.oid = 'fairlane.queues'::regclass)
ORDER BY c.relname, a.attnum;

-- name: horizon
-- Rows of later transactions are younger than this one.
SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint & 4294967295)::text;

-- name: partitions
SELECT p.id, p.start, p.head FROM fairlane.partitions p WHERE p.queue_id = $1 ORDER BY p.id;

-- name: ends
-- The position after the last segment of each partition, and the one of its first.
SELECT u.id, coalesce(l.first_pos + l.n, 0), coalesce(l.first_pos, -1), f.first_pos FROM unnest($1::bigint[]) u(id)
LEFT JOIN LATERAL (SELECT s.first_pos, s.n FROM fairlane.segments s WHERE s.partition_id = u.id ORDER BY s.first_pos DESC LIMIT 1) l ON true
LEFT JOIN LATERAL (SELECT s.first_pos FROM fairlane.segments s WHERE s.partition_id = u.id ORDER BY s.first_pos LIMIT 1) f ON true;

-- name: segments
SELECT s.* FROM unnest($1::bigint[], $2::bigint[]) u(id, after)
CROSS JOIN LATERAL (SELECT x.* FROM fairlane.segments x WHERE x.partition_id = u.id AND x.first_pos > u.after
                    ORDER BY x.first_pos LIMIT $3::bigint) s LIMIT $3::bigint;

-- name: drop_trimmed
DELETE FROM fairlane.segments s USING unnest($1::bigint[], $2::bigint[]) u(id, first) WHERE s.partition_id = u.id AND s.first_pos < u.first;

-- name: drop_early_ids
-- Ids of messages whose segment was copied before it was trimmed. It is trimmed again.
DELETE FROM fairlane.deleted_ids d USING unnest($1::bigint[], $2::bigint[]) u(id, first) WHERE d.partition_id = u.id AND d.first_pos >= u.first;

-- name: arrange
-- The options that name a cell name the new one, or none.
UPDATE fairlane.arriving a SET rows = (
    SELECT jsonb_agg(r || jsonb_build_object('tenant_id', n.id, 'options', r -> 'options' || jsonb_build_object(
        'cell', CASE WHEN r -> 'options' ->> 'cell' ~ '^\d+$' THEN $3::text ELSE '' END)))
    FROM jsonb_array_elements(a.rows) r, fairlane.tenants n WHERE n.name = $2)
WHERE a.queue_id = $1 AND a.table_name = 'queues';

-- name: store_arriving
INSERT INTO fairlane.arriving (queue_id, table_name, chunk, rows) VALUES ($1, $2, $3, $4::text::jsonb);

-- name: clear_arriving
DELETE FROM fairlane.arriving a WHERE a.queue_id = $1;
