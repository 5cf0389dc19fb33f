-- name: get
SELECT s.name, s.revision, s.cursor, s.token, s.leased_until, s.created_at, s.sweep, s.sweeping,
       s.sweep_cursor, s.swept_at, s.committed_at, s.records, s.id
FROM fairlane.sources s WHERE s.tenant = :tenant AND s.name = :name;

-- name: list
SELECT s.name, s.revision, s.cursor, s.token, s.leased_until, s.created_at, s.sweep, s.sweeping,
       s.sweep_cursor, s.swept_at, s.committed_at, s.records, s.id
FROM fairlane.sources s WHERE s.tenant = :tenant ORDER BY s.name;

-- name: lease
INSERT INTO fairlane.sources AS s (tenant, name, leased_until, created_at)
VALUES (:tenant, :name, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds),
        coalesce(:now, clock_timestamp()))
ON CONFLICT (tenant, name) DO UPDATE SET token = s.token + 1, leased_until = excluded.leased_until
WHERE s.leased_until IS NULL OR s.leased_until <= coalesce(:now, clock_timestamp())
RETURNING s.name, s.revision, s.cursor, s.token, s.leased_until, s.created_at, s.sweep, s.sweeping,
          s.sweep_cursor, s.swept_at, s.committed_at, s.records, s.id;

-- name: keep
UPDATE fairlane.sources s SET leased_until = coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds)
WHERE s.tenant = :tenant AND s.name = :name AND s.token = :token
  AND s.leased_until > coalesce(:now, clock_timestamp())
RETURNING s.name, s.revision, s.cursor, s.token, s.leased_until, s.created_at, s.sweep, s.sweeping,
          s.sweep_cursor, s.swept_at, s.committed_at, s.records, s.id;

-- name: release
UPDATE fairlane.sources s SET leased_until = NULL
WHERE s.tenant = :tenant AND s.name = :name AND s.token = :token
  AND s.leased_until > coalesce(:now, clock_timestamp())
RETURNING s.id;

-- name: delete
DELETE FROM fairlane.sources s WHERE s.tenant = :tenant AND s.name = :name RETURNING s.id;

-- name: delete_records
DELETE FROM fairlane.shadow_records r WHERE r.shard = 0 AND r.source_id = :source_id;

-- name: delete_copies
DELETE FROM fairlane.shadow_copies c WHERE c.shard = 0 AND c.source_id = :source_id;

-- name: known
SELECT r.key, r.hash FROM fairlane.shadow_records r
WHERE r.shard = 0 AND r.source_id = :source_id AND r.key = ANY (ARRAY(SELECT k FROM json_array_elements_text(:keys::json) k));

-- name: unseen
SELECT r.key, octet_length(c.data) FROM fairlane.shadow_records r
JOIN fairlane.shadow_copies c ON c.shard = r.shard AND c.source_id = r.source_id AND c.key = r.key
WHERE r.shard = 0 AND r.source_id = :source_id AND r.sweep < :sweep ORDER BY r.sweep, r.key LIMIT :limit;

-- name: copies
SELECT c.key, c.partition, c.data FROM fairlane.shadow_copies c
WHERE c.shard = 0 AND c.source_id = :source_id AND c.key = ANY (ARRAY(SELECT k FROM json_array_elements_text(:keys::json) k));

-- name: step
-- Its row is locked before anything else of the transaction: of two commits the second waits here, and finds the step
-- taken.
UPDATE fairlane.sources s SET revision = :revision, cursor = :cursor, sweep = :sweep, sweeping = :sweeping,
    sweep_cursor = :sweep_cursor,
    swept_at = CASE WHEN :swept THEN coalesce(:now, clock_timestamp()) ELSE s.swept_at END,
    committed_at = coalesce(:now, clock_timestamp()), records = :records
WHERE s.tenant = :tenant AND s.name = :name AND s.id = :source_id AND s.revision = :before
  AND s.token = :token AND s.leased_until > coalesce(:now, clock_timestamp())
RETURNING s.id;

-- name: see
INSERT INTO fairlane.shadow_records AS r (shard, source_id, key, hash, sweep)
SELECT 0, :source_id, u.key, u.value, :sweep FROM json_each_text(:seen::json) u
ON CONFLICT (shard, source_id, key) DO UPDATE SET hash = excluded.hash, sweep = excluded.sweep;

-- name: copy
INSERT INTO fairlane.shadow_copies AS c (shard, source_id, key, partition, data)
SELECT 0, :source_id, u.key, u.partition, u.data
FROM unnest(:keys::text[], :partitions::text[], :data::bytea[]) u(key, partition, data)
ON CONFLICT (shard, source_id, key) DO UPDATE SET partition = excluded.partition, data = excluded.data;

-- name: forget_copies
DELETE FROM fairlane.shadow_copies c
WHERE c.shard = 0 AND c.source_id = :source_id AND c.key = ANY (ARRAY(SELECT g FROM json_array_elements_text(:gone::json) g));

-- name: forget
DELETE FROM fairlane.shadow_records r
WHERE r.shard = 0 AND r.source_id = :source_id AND r.key = ANY (ARRAY(SELECT g FROM json_array_elements_text(:gone::json) g));
