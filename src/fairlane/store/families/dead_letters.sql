-- part: letter
d.partition_id, d.group_id, d.position, q.name, p.name::text, g.name, d.message, d.message_created_at, d.error,
       d.attempts, d.first_failed_at, d.failed_at, d.replayed_at, d.replayed_as, d.history, d.traceback

-- part: id
(d.partition_id >> 45)::text COLLATE "C" || '-' || (d.partition_id & 35184372088831) || '-' || d.group_id || '-' || d.position

-- part: joined
FROM fairlane.dead_letters d
JOIN fairlane.queues q ON q.id = d.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id
JOIN fairlane.groups g ON g.id = d.group_id
JOIN fairlane.partitions p ON p.id = d.partition_id

-- part: matching
{joined} WHERE d.queue_id = :queue_id
  AND (:group::text IS NULL OR g.name = :group)
  AND (:partition_id::bigint IS NULL OR d.partition_id = :partition_id)
  AND (:ids::text[] IS NULL OR {id} = ANY (:ids))
  AND d.failed_at >= coalesce(:failed_from::timestamptz, '-infinity') AND d.failed_at < coalesce(:failed_until::timestamptz, 'infinity')
  AND (:replayed::boolean IS NULL OR (d.replayed_at IS NOT NULL) = :replayed)
  AND (:error::text IS NULL OR strpos(d.error, :error) > 0)

-- part: given
SELECT d.partition_id, d.group_id, d.position FROM fairlane.dead_letters d
JOIN unnest(:partition_ids::bigint[], :group_ids::bigint[], :positions::bigint[]) u(partition_id, group_id, position)
  ON u.partition_id = d.partition_id AND u.group_id = d.group_id AND u.position = d.position

-- name: page
SELECT {letter} {matching}
  AND (:before_at::timestamptz IS NULL OR (d.failed_at, {id}) < (:before_at, :before_id::text COLLATE "C"))
ORDER BY d.failed_at DESC, {id} DESC LIMIT :limit

-- name: oldest
SELECT {letter} {matching} ORDER BY d.failed_at, d.partition_id, d.position, d.group_id LIMIT :limit

-- name: count
SELECT count(*) {matching}

-- name: queues
SELECT q.id FROM fairlane.tenants t JOIN fairlane.queues q ON q.tenant_id = t.id
WHERE t.name = :tenant AND EXISTS (SELECT 1 FROM fairlane.dead_letters d WHERE d.queue_id = q.id
                                       AND d.failed_at >= coalesce(:since::timestamptz, '-infinity'))

-- name: errors
-- Counts by group and error. Only the latest ones, to bound the time.
SELECT x.name, x.error, count(*), count(x.replayed_at), min(x.first_failed_at), max(x.failed_at)
FROM (SELECT g.name, d.error, d.replayed_at, d.first_failed_at, d.failed_at {matching}
      ORDER BY d.failed_at DESC LIMIT :counted) x
GROUP BY x.name, x.error ORDER BY count(*) DESC, x.error LIMIT :limit

-- name: get
SELECT {letter} {joined}
WHERE d.queue_id = :queue_id AND d.partition_id = :partition_id AND d.group_id = :group_id AND d.position = :position

-- part: target (postgres)
CASE WHEN jsonb_typeof(q.options -> 'dead_letter_queue') = 'string' THEN q.options ->> 'dead_letter_queue' END

-- part: target (sqlite)
iif(json_type(q.options, '$.dead_letter_queue') = 'text', q.options ->> '$.dead_letter_queue', null)

-- name: pending
-- Letters that wait to be forwarded to the queue named for them, longest waiting first.
SELECT t.name, {target}, {letter}
{joined} WHERE d.forward_at <= coalesce(:now, now()) ORDER BY d.forward_at LIMIT :limit

-- name: still_dead
-- Selects the letters that nobody replayed meanwhile.
{given} WHERE d.replayed_at IS NULL ORDER BY d.partition_id, d.group_id, d.position FOR UPDATE OF d

-- name: still_pending
{given} WHERE d.forward_at <= coalesce(:now, clock_timestamp())
ORDER BY d.partition_id, d.group_id, d.position FOR UPDATE OF d

-- name: replayed
UPDATE fairlane.dead_letters AS d SET replayed_at = coalesce(:now, clock_timestamp()), replayed_as = u.replayed_as
FROM unnest(:partition_ids::bigint[], :group_ids::bigint[], :positions::bigint[], :replayed_as::text[])
     u(partition_id, group_id, position, replayed_as)
WHERE d.partition_id = u.partition_id AND d.group_id = u.group_id AND d.position = u.position

-- name: postpone
-- Without :seconds the letter is not forwarded.
UPDATE fairlane.dead_letters AS d SET forward_at = coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds::int)
FROM unnest(:partition_ids::bigint[], :group_ids::bigint[], :positions::bigint[]) u(partition_id, group_id, position)
WHERE d.partition_id = u.partition_id AND d.group_id = u.group_id AND d.position = u.position

-- name: lock_cursors (postgres, lock)
-- These locks wait for pops, which move cursors without locking their partitions.
SELECT k.partition_id FROM fairlane.cursors k
WHERE k.partition_id = ANY (:partition_ids) ORDER BY k.partition_id, k.group_id FOR UPDATE

-- name: delete
-- failed_at tells a letter apart from a later one of the same message.
DELETE FROM fairlane.dead_letters AS d WHERE (d.partition_id, d.group_id, d.position, d.failed_at) IN (
    SELECT u.partition_id, u.group_id, u.position, u.failed_at
    FROM unnest(:partition_ids::bigint[], :group_ids::bigint[], :positions::bigint[], :failed_at::timestamptz[])
         u(partition_id, group_id, position, failed_at))
RETURNING position

-- name: options
SELECT q.options FROM fairlane.queues q WHERE q.id = :queue_id

-- name: names
SELECT t.name, q.name, p.name::text
FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id JOIN fairlane.tenants t ON t.id = q.tenant_id
WHERE p.id = :partition_id
