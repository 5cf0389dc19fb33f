-- Only here: the directory of a store of several cells, which is in its home. SQLite is always one cell.

-- name: cells
SELECT c.cell, c.schema, c.url, c.state FROM fairlane.cells c WHERE c.state <> 'removed' ORDER BY c.cell;

-- name: all_placed
SELECT p.tenant, p.queue, p.cell FROM fairlane.placed p;

-- name: placed
-- A queue that no cell has at this moment is switching to another cell.
SELECT p.queue, p.cell, EXISTS (SELECT FROM fairlane.moves x JOIN fairlane.moved m ON m.id = x.queue_id
                                WHERE x.tenant = p.tenant AND x.queue = p.queue AND NOT m.arrived)
FROM fairlane.placed p WHERE p.tenant = $1 AND p.queue = ANY ($2);

-- name: moved
SELECT m.id, m.cell, m.arrived FROM fairlane.moved m;

-- name: place
SELECT * FROM fairlane.place($1, $2, $3);

-- name: returned
-- In a cell that these queues moved away from. They were deleted since, and are placed there again.
DELETE FROM fairlane.placed p WHERE p.tenant = $1 AND p.queue = ANY ($2);

-- name: add
-- The first cell makes the home a cell, too.
INSERT INTO fairlane.cells (cell, schema, url, state)
SELECT 0, 'fairlane', NULL, 'open' WHERE NOT EXISTS (SELECT FROM fairlane.cells) UNION ALL
SELECT $1, $2, $3, 'joining'
ON CONFLICT (cell) DO NOTHING RETURNING cell;

-- name: next_cell
-- The number of a removed cell is not used again, because its ids may be in use: in another cell, or by clients.
SELECT coalesce(max(c.cell), 0) + 1 FROM fairlane.cells c;

-- name: lock_queues
-- Waits for placements that began before the cell was there. Those that begin later respect `placed`.
LOCK TABLE fairlane.queues IN SHARE MODE;

-- name: found
-- Schemas of this database that hold a cell or a store.
SELECT n.nspname FROM pg_namespace n WHERE n.nspname ~ '^fairlane(_\d+)?$' AND to_regclass(n.nspname || '.migrations') IS NOT NULL;

-- name: lock_births
LOCK TABLE fairlane.queues IN ACCESS EXCLUSIVE MODE;

-- name: count_queues
SELECT count(*) FROM fairlane.queues;

-- name: hold_cell
-- No move to or from the cell begins meanwhile.
SELECT x.queue FROM fairlane.cells c LEFT JOIN fairlane.moves x ON c.cell IN (x.source, x.target) WHERE c.cell = $1 FOR UPDATE OF c;

-- name: set_state
UPDATE fairlane.cells c SET state = $2 WHERE c.cell = $1 AND c.state <> 'removed' RETURNING c.cell;

-- name: remove
WITH p AS (DELETE FROM fairlane.placed p WHERE p.cell = $1)
UPDATE fairlane.cells c SET state = 'removed', url = NULL WHERE c.cell = $1 RETURNING c.cell;

-- name: identity
SELECT i.home, i.cell FROM fairlane.identity i;

-- name: identify
INSERT INTO fairlane.identity (home, cell) VALUES (coalesce($1, gen_random_uuid()), $2)
ON CONFLICT (one) DO UPDATE SET cell = fairlane.identity.cell RETURNING home, cell;

-- name: size
SELECT (SELECT count(*) FROM fairlane.queues) AS queues,
       coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint AS bytes,
       (SELECT coalesce(sum(p.head), 0)::bigint FROM fairlane.partitions p) AS pushed
FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = (SELECT x.relnamespace FROM pg_class x WHERE x.oid = 'fairlane.queues'::regclass);

-- name: forget_keys
DELETE FROM fairlane.data_keys k WHERE k.queue_id = $1;

-- name: named
-- Queues with these ids, or with partitions of these ids.
SELECT DISTINCT q.name FROM fairlane.queues q
WHERE q.id = ANY ($1) OR q.id IN (SELECT p.queue_id FROM fairlane.partitions p WHERE p.id = ANY ($2)) ORDER BY q.name;
