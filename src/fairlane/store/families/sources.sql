-- part: source
name, revision, cursor, token, leased_until, created_at, sweep, sweeping, sweep_cursor, swept_at, committed_at, records, id

-- name: get
SELECT {source} FROM fairlane.sources s WHERE s.tenant = :tenant AND s.name = :name

-- name: all
SELECT {source} FROM fairlane.sources s WHERE s.tenant = :tenant ORDER BY s.name

-- name: lease
INSERT INTO fairlane.sources AS s (tenant, name, leased_until, created_at)
VALUES (:tenant, :name, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds),
        coalesce(:now, clock_timestamp()))
ON CONFLICT (tenant, name) DO UPDATE SET token = s.token + 1, leased_until = excluded.leased_until
WHERE s.leased_until IS NULL OR s.leased_until <= coalesce(:now, clock_timestamp())
RETURNING {source}

-- name: keep
UPDATE fairlane.sources AS s SET leased_until = coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds)
WHERE s.tenant = :tenant AND s.name = :name AND s.token = :token
  AND s.leased_until > coalesce(:now, clock_timestamp())
RETURNING {source}

-- name: release
UPDATE fairlane.sources AS s SET leased_until = NULL
WHERE s.tenant = :tenant AND s.name = :name AND s.token = :token
  AND s.leased_until > coalesce(:now, clock_timestamp())
RETURNING id

-- name: delete
DELETE FROM fairlane.sources AS s WHERE s.tenant = :tenant AND s.name = :name RETURNING id

-- name: delete_records
DELETE FROM fairlane.shadow_records AS r WHERE r.source_id = :source_id

-- name: delete_copies
DELETE FROM fairlane.shadow_copies AS c WHERE c.source_id = :source_id

-- name: hashes
SELECT r.key, r.hash FROM fairlane.shadow_records r
WHERE r.source_id = :source_id AND r.key = ANY (:keys)

-- name: not_seen_since
SELECT r.key, octet_length(c.data) FROM fairlane.shadow_records r
JOIN fairlane.shadow_copies c ON c.source_id = r.source_id AND c.key = r.key
WHERE r.source_id = :source_id AND r.sweep < :sweep ORDER BY r.sweep, r.key LIMIT :limit

-- name: copies
SELECT c.key, c.partition, c.data FROM fairlane.shadow_copies c
WHERE c.source_id = :source_id AND c.key = ANY (:keys)

-- name: step
-- Locks the row before any other of the transaction. A second commit waits here, then finds another revision.
UPDATE fairlane.sources AS s SET revision = :revision, cursor = :cursor, sweep = :sweep, sweeping = :sweeping,
    sweep_cursor = :sweep_cursor,
    swept_at = CASE WHEN :swept THEN coalesce(:now, clock_timestamp()) ELSE s.swept_at END,
    committed_at = coalesce(:now, clock_timestamp()), records = :records
WHERE s.tenant = :tenant AND s.name = :name AND s.id = :source_id AND s.revision = :before
  AND s.token = :token AND s.leased_until > coalesce(:now, clock_timestamp())
RETURNING id

-- name: see
INSERT INTO fairlane.shadow_records AS r (source_id, key, hash, sweep)
SELECT :source_id, u.key, u.value, :sweep FROM json_each_text(:seen::json) u WHERE true
ON CONFLICT (source_id, key) DO UPDATE SET hash = excluded.hash, sweep = excluded.sweep

-- name: copy (postgres)
INSERT INTO fairlane.shadow_copies AS c (source_id, key, partition, data)
SELECT :source_id, u.key, u.partition, u.data
FROM unnest(:keys::text[], :partitions::text[], :data::bytea[]) u(key, partition, data)
ON CONFLICT (source_id, key) DO UPDATE SET partition = excluded.partition, data = excluded.data

-- name: copy (sqlite)
-- Each:
insert into shadow_copies (source_id, key, partition, data) values (:source_id, :keys, :partitions, :data)
on conflict (source_id, key) do update set partition = excluded.partition, data = excluded.data

-- name: forget_copies
DELETE FROM fairlane.shadow_copies AS c
WHERE c.source_id = :source_id AND c.key = ANY (:gone)

-- name: forget
DELETE FROM fairlane.shadow_records AS r
WHERE r.source_id = :source_id AND r.key = ANY (:gone)
