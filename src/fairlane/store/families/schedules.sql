-- part: schedule
s.tenant, s.name, s.options, s.revision, s.next_at, s.paused_at, s.last_at, s.last_queue, s.last_partition

-- name: get
SELECT {schedule} FROM fairlane.schedules s
WHERE s.tenant = :tenant AND s.name = :name

-- name: all
SELECT {schedule} FROM fairlane.schedules s
WHERE s.tenant = :tenant ORDER BY s.name

-- name: due
SELECT {schedule} FROM fairlane.schedules s
WHERE s.next_at <= coalesce(:now, clock_timestamp()) ORDER BY s.next_at LIMIT :limit

-- name: next
SELECT min(s.next_at), coalesce(:now, clock_timestamp()) FROM fairlane.schedules s
WHERE s.next_at IS NOT NULL

-- name: put
INSERT INTO fairlane.schedules AS s (tenant, name, options, revision, next_at)
VALUES (:tenant, :name, :options, :revision, :next_at)
ON CONFLICT (tenant, name) DO UPDATE SET options = excluded.options, revision = excluded.revision,
    next_at = CASE WHEN s.paused_at IS NULL THEN excluded.next_at END
WHERE s.options <> excluded.options

-- name: delete
DELETE FROM fairlane.schedules AS s WHERE s.tenant = :tenant AND s.name = :name RETURNING name

-- name: set_next
UPDATE fairlane.schedules AS s SET revision = :revision, next_at = :next_at,
    paused_at = CASE WHEN :next_at::timestamptz IS NULL THEN coalesce(s.paused_at, coalesce(:now, clock_timestamp())) END
WHERE s.tenant = :tenant AND s.name = :name
RETURNING tenant, name, options, revision, next_at, paused_at, last_at, last_queue, last_partition

-- name: advance
-- Locks the row before any other of the transaction. A second broker waits here, then finds another revision.
UPDATE fairlane.schedules AS s SET revision = :revision, next_at = :next_at, last_at = coalesce(:last_at, s.last_at),
    last_queue = coalesce(:last_queue, s.last_queue), last_partition = coalesce(:last_partition, s.last_partition)
WHERE s.tenant = :tenant AND s.name = :name AND s.revision = :before
RETURNING name
