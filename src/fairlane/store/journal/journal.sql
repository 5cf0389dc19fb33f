-- Only here: the journal is an SQLite file of the broker, whatever its store is.

-- The journal file. It is not a store: all processes of a broker append entries, read them in order and remove them.

-- name: schema
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused, so that the order survives an empty journal
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,                    -- name of the queue, for acks of the group
    partition TEXT NOT NULL,
    messages INTEGER NOT NULL,
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    error TEXT,                            -- set if the operation failed
    id BLOB NOT NULL                       -- id of the operation; not unique, because a file may be adopted twice
) STRICT;
CREATE INDEX IF NOT EXISTS entries_by_lane ON entries (kind, tenant, name, partition, seq) WHERE error IS NULL; -- sizes
CREATE INDEX IF NOT EXISTS entries_id ON entries (id); -- find, page, retry
CREATE TABLE IF NOT EXISTS backlogs (      -- backlogs with pending entries
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    partition TEXT NOT NULL,
    entries INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant, name, partition)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    entries INTEGER NOT NULL,              -- pending
    messages INTEGER NOT NULL,             -- messages in pending entries
    bytes INTEGER NOT NULL,                -- of all
    failed INTEGER NOT NULL,
    backlogs INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO totals VALUES (1, 0, 0, 0, 0, 0);
CREATE TABLE IF NOT EXISTS abandoned (     -- backlogs with abandoned work of a process that may still be applied
    member INTEGER NOT NULL,
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    partition TEXT NOT NULL,
    PRIMARY KEY (member, kind, tenant, name, partition)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS known (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS backlog_came AFTER INSERT ON backlogs BEGIN
    UPDATE totals SET backlogs = backlogs + 1;
END;
CREATE TRIGGER IF NOT EXISTS backlog_went AFTER DELETE ON backlogs BEGIN
    UPDATE totals SET backlogs = backlogs - 1;
END;
CREATE TRIGGER IF NOT EXISTS pending_came AFTER INSERT ON entries WHEN new.error IS NULL BEGIN
    INSERT INTO backlogs VALUES (new.kind, new.tenant, new.name, new.partition, 1)
    ON CONFLICT DO UPDATE SET entries = entries + 1;
    UPDATE totals SET entries = entries + 1, messages = messages + new.messages, bytes = bytes + length(new.body) + 100;
END;
CREATE TRIGGER IF NOT EXISTS failed_came AFTER INSERT ON entries WHEN new.error IS NOT NULL BEGIN
    UPDATE totals SET failed = failed + 1, bytes = bytes + length(new.body) + 100;
END;
CREATE TRIGGER IF NOT EXISTS pending_went AFTER DELETE ON entries WHEN old.error IS NULL BEGIN
    UPDATE backlogs SET entries = entries - 1
    WHERE kind = old.kind AND tenant = old.tenant AND name = old.name AND partition = old.partition;
    DELETE FROM backlogs
    WHERE kind = old.kind AND tenant = old.tenant AND name = old.name AND partition = old.partition AND entries = 0;
    UPDATE totals SET entries = entries - 1, messages = messages - old.messages, bytes = bytes - length(old.body) - 100;
END;
CREATE TRIGGER IF NOT EXISTS failed_went AFTER DELETE ON entries WHEN old.error IS NOT NULL BEGIN
    UPDATE totals SET failed = failed - 1, bytes = bytes - length(old.body) - 100;
END;

-- name: append
INSERT INTO entries (kind, tenant, name, partition, messages, body, created_at, error, id)
values (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: counts
SELECT b.kind, b.tenant, b.name, b.partition, b.entries
FROM json_each(?) l JOIN backlogs b
  ON b.kind = l.value ->> 0 AND b.tenant = l.value ->> 1 AND b.name = l.value ->> 2 AND b.partition = l.value ->> 3;

-- name: backlogs
SELECT kind, tenant, name, partition, entries FROM backlogs;

-- name: sizes
-- Sizes of the first entries of each backlog.
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

-- name: find
SELECT seq, kind, tenant, name, partition, messages, body, created_at, error, id FROM entries WHERE id = ? LIMIT 1;

-- name: page
SELECT seq, kind, tenant, name, partition, messages, x'' AS body, created_at, error, id
FROM entries WHERE id > ?1 AND (?2 IS NULL OR (error IS NOT NULL) = ?2) ORDER BY id, seq LIMIT ?3;

-- name: remove
DELETE FROM entries WHERE seq IN (SELECT value FROM json_each(?));

-- name: take
DELETE FROM entries WHERE seq = ? AND error IS NULL
RETURNING seq, kind, tenant, name, partition, messages, body, created_at, error, id;

-- name: take_failed
DELETE FROM entries WHERE id = ? AND error IS NOT NULL
RETURNING seq, kind, tenant, name, partition, messages, body, created_at, error, id;

-- name: put_back
INSERT INTO entries (seq, kind, tenant, name, partition, messages, body, created_at, error, id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: totals
SELECT entries, messages, bytes, failed, (SELECT created_at FROM entries WHERE error IS NULL ORDER BY seq LIMIT 1),
       backlogs
FROM totals;

-- name: bytes
SELECT bytes FROM totals;

-- name: settle
DELETE FROM abandoned WHERE member = ?;

-- name: abandon
INSERT INTO abandoned (member, kind, tenant, name, partition) values (?, ?, ?, ?, ?);

-- name: abandoned
SELECT member, kind, tenant, name, partition FROM abandoned WHERE member <> ?;

-- name: next
SELECT seq, kind, tenant, name, partition, messages, body, created_at, error, id FROM entries ORDER BY seq LIMIT ?;

-- name: drop
DELETE FROM entries WHERE seq <= ?;

-- name: save
INSERT OR REPLACE INTO known (key, value) VALUES (?, ?);

-- name: saved
SELECT value FROM known WHERE key = ?;
