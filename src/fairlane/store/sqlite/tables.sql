-- Only here: reads a stopped store to move it elsewhere.

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name;

-- name: columns
SELECT name FROM pragma_table_info(?);

-- name: sequences
SELECT name, seq FROM sqlite_sequence;

-- name: unfinished
-- What a broker must finish before the store can move.
SELECT (SELECT coalesce(sum(open), 0) FROM operation_backlogs), (SELECT count(*) FROM purges),
       (SELECT count(*) FROM groups WHERE seed_after IS NOT NULL);

-- name: log
SELECT partition_id, first_pos, n, created_at, body FROM segments ORDER BY partition_id, first_pos;

-- name: lanes
SELECT partition_id, group_id, committed, claimed, parked, failing, dead, expired FROM cursors
ORDER BY partition_id, group_id;

-- name: typed_columns
SELECT name, type FROM pragma_table_info(?);

-- name: last_id
SELECT seq FROM sqlite_sequence WHERE name = ?;
