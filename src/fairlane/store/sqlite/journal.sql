-- Only here: the journal is an SQLite file of the broker, whatever its store is.

-- The journal's file. Not a store: entries are appended, read in order and removed.

-- name: schema
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again, so that order survives an empty journal
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,                    -- of the queue, or of the group for acks
    partition TEXT NOT NULL,
    messages INTEGER NOT NULL,
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    error TEXT,                            -- set when it was given up on
    id BLOB                                -- of the operation; not unique, as what was adopted twice is there twice
) STRICT;
CREATE INDEX IF NOT EXISTS entries_by_lane ON entries (kind, tenant, name, partition, seq) WHERE error IS NULL; -- sizes
DROP INDEX IF EXISTS entries_waiting;
CREATE TABLE IF NOT EXISTS catalogue (id INTEGER PRIMARY KEY CHECK (id = 1), queues BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS specs (id INTEGER PRIMARY KEY CHECK (id = 1), versions BLOB NOT NULL) STRICT;

-- name: has_ids
SELECT EXISTS (SELECT 1 FROM pragma_table_info('entries') WHERE name = 'id');

-- name: add_ids
ALTER TABLE entries ADD COLUMN id BLOB;

-- name: index_ids
CREATE INDEX IF NOT EXISTS entries_id ON entries (id); -- find, page

-- name: append
INSERT INTO entries (kind, tenant, name, partition, messages, body, id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: sizes
-- Of the first entries of each backlog.
SELECT l.key, e.seq, length(e.body)
FROM json_each(?) l JOIN entries e ON e.seq IN (
    SELECT x.seq FROM entries x
    WHERE x.kind = l.value ->> 0 AND x.tenant = l.value ->> 1 AND x.name = l.value ->> 2 AND x.partition = l.value ->> 3
      AND x.error IS NULL
    ORDER BY x.seq LIMIT ?)
ORDER BY e.seq;

-- name: read
SELECT seq, kind, tenant, name, partition, messages, body, created_at, error, id
FROM entries WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq;

-- name: failed
SELECT seq, kind, tenant, name, partition, messages, body, created_at, error, id
FROM entries WHERE error IS NOT NULL ORDER BY seq LIMIT ?;

-- name: failed_entry
SELECT seq, kind, tenant, name, partition, messages, body, created_at, error, id
FROM entries WHERE seq = ? AND error IS NOT NULL;

-- name: find
SELECT seq, kind, tenant, name, partition, messages, body, created_at, error, id FROM entries WHERE id = ? LIMIT 1;

-- name: page
SELECT seq, kind, tenant, name, partition, messages, x'' AS body, created_at, error, id
FROM entries WHERE id > ?1 AND (?2 IS NULL OR (error IS NOT NULL) = ?2) ORDER BY id, seq LIMIT ?3;

-- name: remove
DELETE FROM entries WHERE seq IN (SELECT value FROM json_each(?));

-- name: fail
UPDATE entries SET error = ? WHERE seq = ?;

-- name: retry
INSERT INTO entries (kind, tenant, name, partition, messages, body, created_at, id)
SELECT kind, tenant, name, partition, messages, body, created_at, id FROM entries WHERE seq = ? AND error IS NOT NULL
RETURNING kind, tenant, name, partition;

-- name: backlogs
SELECT kind, tenant, name, partition, count(*) FROM entries WHERE error IS NULL GROUP BY kind, tenant, name, partition;

-- name: measure
SELECT count(*) FILTER (WHERE error IS NULL), coalesce(sum(messages) FILTER (WHERE error IS NULL), 0),
       coalesce(sum(length(body)), 0), count(*) FILTER (WHERE error IS NOT NULL),
       min(created_at) FILTER (WHERE error IS NULL)
FROM entries;

-- name: oldest
SELECT created_at FROM entries WHERE error IS NULL ORDER BY seq LIMIT 1;

-- name: any
SELECT EXISTS (SELECT 1 FROM entries);

-- name: next
SELECT seq, kind, tenant, name, partition, messages, body, created_at, error, id FROM entries ORDER BY seq LIMIT ?;

-- name: adopt
INSERT INTO entries (kind, tenant, name, partition, messages, body, created_at, error, id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: drop
DELETE FROM entries WHERE seq <= ?;

-- name: save_catalogue
INSERT OR REPLACE INTO catalogue (id, queues) VALUES (1, ?);

-- name: catalogue
SELECT queues FROM catalogue;

-- name: save_specs
INSERT OR REPLACE INTO specs (id, versions) VALUES (1, ?);

-- name: specs
SELECT versions FROM specs;
