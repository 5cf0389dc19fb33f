-- Only here: a PostgreSQL database is backed up with pg_dump.

-- What a backup holds beside the store. A broker that is started on a backup ignores these tables.

-- name: schema
CREATE TABLE backup (one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER NOT NULL, made_at INTEGER NOT NULL) STRICT;
CREATE TABLE backup_counts (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- Entries of the journal in their order.
CREATE TABLE backup_journal (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL, tenant TEXT NOT NULL, name TEXT NOT NULL, partition TEXT NOT NULL, messages INTEGER NOT NULL,
    body BLOB NOT NULL, created_at INTEGER NOT NULL, error TEXT, id BLOB NOT NULL
) STRICT;

-- name: add_entry
INSERT INTO backup_journal (kind, tenant, name, partition, messages, body, created_at, error, id)
values (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_count
INSERT INTO backup_counts (name, count) values (?, ?);

-- name: describe
INSERT INTO backup (one, format, made_at) VALUES (1, ?, ?);

-- name: description
SELECT format, made_at FROM backup;

-- name: recorded
SELECT name, count FROM backup_counts;

-- name: counts
SELECT 'queues', count(*) FROM queues
UNION ALL SELECT 'partitions', count(*) FROM partitions
UNION ALL SELECT 'messages', coalesce(sum(n), 0) FROM segments
UNION ALL SELECT 'groups', count(*) FROM groups
UNION ALL SELECT 'lanes', count(*) FROM cursors
UNION ALL SELECT 'dead letters', count(*) FROM dead_letters
UNION ALL SELECT 'scheduled messages', coalesce(sum(n - taken), 0) FROM scheduled_segments
UNION ALL SELECT 'operations', count(*) FROM operations
UNION ALL SELECT 'journal entries', count(*) FROM backup_journal;

-- name: bodies
SELECT p.name, s.first_pos, s.checksum, s.body FROM segments s LEFT JOIN partitions p ON p.id = s.partition_id;

-- name: entries
SELECT kind, tenant, name, partition, messages, body, created_at, error, id FROM backup_journal ORDER BY number;

-- name: strip
DROP TABLE backup;
DROP TABLE backup_counts;
DROP TABLE backup_journal;
