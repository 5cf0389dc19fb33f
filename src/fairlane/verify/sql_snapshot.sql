-- The contents of the queues of a run, read with SQL beside the broker. `:prefix` begins the names of these queues.

-- name: messages
SELECT m.queue, m.partition, m.transaction_id
FROM fairlane.messages m WHERE substr(m.queue, 1, length(:prefix)) = :prefix ORDER BY m.queue, m.partition, m.position;

-- name: lanes
SELECT l.queue, l.partition, l."group", l.lag FROM fairlane.lanes l WHERE substr(l.queue, 1, length(:prefix)) = :prefix;

-- name: letters
SELECT q.name AS queue, p.name AS partition, g.name AS "group", count(*) AS letters
FROM fairlane.dead_letters d
JOIN fairlane.partitions p ON p.id = d.partition_id
JOIN fairlane.groups g ON g.id = d.group_id
JOIN fairlane.queues q ON q.id = p.queue_id
WHERE substr(q.name, 1, length(:prefix)) = :prefix GROUP BY q.name, p.name, g.name;

-- name: in_clear (postgres)
SELECT DISTINCT q.name AS queue FROM fairlane.segments s
JOIN fairlane.partitions p ON p.id = s.partition_id
JOIN fairlane.queues q ON q.id = p.queue_id
WHERE substr(q.name, 1, length(:prefix)) = :prefix AND position('"padding"'::bytea IN s.body) > 0;

-- name: in_clear (sqlite)
select distinct q.name as queue from segments s
join partitions p on p.id = s.partition_id
join queues q on q.id = p.queue_id
where substr(q.name, 1, length(:prefix)) = :prefix and instr(s.body, cast('"padding"' as blob)) > 0;

-- name: foreign_queues
SELECT count(*) AS queues FROM fairlane.queues q WHERE substr(q.name, 1, length(:prefix)) <> :prefix;

-- name: installed (postgres)
SELECT to_regclass('fairlane.queues') IS NOT NULL AS installed;

-- name: installed (sqlite)
select count(*) > 0 as installed from sqlite_schema where name = 'queues';

-- name: sessions (postgres)
SELECT count(*) AS sessions FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.application_name = 'fairlane' AND a.pid <> pg_backend_pid();

-- name: version (postgres)
SELECT split_part(version(), ' ', 2) AS version;

-- name: terminate (postgres)
SELECT count(pg_terminate_backend(a.pid)) AS terminated FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.application_name = 'fairlane' AND a.pid <> pg_backend_pid();

-- name: cancel (postgres)
SELECT count(pg_cancel_backend(a.pid)) AS cancelled FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.application_name = 'fairlane' AND a.pid <> pg_backend_pid();
