-- name: add (postgres)
INSERT INTO fairlane.history_minutes AS h (subject, minute, writer, data)
SELECT u.subject, u.minute, :writer::bigint, u.data
FROM unnest(:subjects::bigint[], :minutes::int[], :data::bytea[]) u(subject, minute, data)
ON CONFLICT (subject, minute, writer) DO UPDATE SET data = excluded.data

-- name: add (sqlite)
-- Each:
insert into history_minutes (subject, minute, writer, data) values (:subjects, :minutes, :writer, :data)
on conflict (subject, minute, writer) do update set data = excluded.data

-- name: read
-- One statement, so that a row that is packed meanwhile is seen once.
SELECT h.subject, h.minute, false AS packed, h.data FROM fairlane.history_minutes h
WHERE h.subject = ANY (:subjects) AND h.minute >= :since AND h.minute < :until
UNION ALL
SELECT h.subject, h.hour, true, h.data FROM fairlane.history_hours h
WHERE h.subject = ANY (:subjects) AND h.hour >= :since_hour AND h.hour * 60 < :until

-- name: unpacked
SELECT DISTINCT h.subject FROM fairlane.history_minutes h WHERE h.minute < :before ORDER BY h.subject LIMIT :limit

-- name: lock (postgres, lock)
-- The leader packs. One that has just lost the lead must not overwrite what the next one packs.
SELECT 1 FROM fairlane.leadership l WHERE l.name = 'history' FOR UPDATE

-- name: take
DELETE FROM fairlane.history_minutes AS h WHERE h.subject = ANY (:subjects) AND h.minute < :before
RETURNING subject, minute, data

-- name: packed
SELECT h.subject, h.hour, h.data FROM fairlane.history_hours h
WHERE h.subject = ANY (:subjects) AND h.hour = ANY (:hours)

-- name: pack (postgres)
INSERT INTO fairlane.history_hours AS h (subject, hour, data)
SELECT u.subject, u.hour, u.data FROM unnest(:subjects::bigint[], :hours::int[], :data::bytea[]) u(subject, hour, data)
ON CONFLICT (subject, hour) DO UPDATE SET data = excluded.data

-- name: pack (sqlite)
-- Each:
insert into history_hours (subject, hour, data) values (:subjects, :hours, :data)
on conflict (subject, hour) do update set data = excluded.data

-- name: forget
DELETE FROM fairlane.history_hours AS h WHERE h.hour < :before
