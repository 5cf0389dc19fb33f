-- The state of a unique message is read from its lanes, where every ack, cancellation and deletion leaves it. So none of these costs
-- anything for other messages.

-- part: finished
-- True if some group has finished the message, or no group can receive it.
(NOT EXISTS (SELECT 1 FROM fairlane.partitions t WHERE t.id = u.partition_id AND t.start <= u.position)
 OR EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = u.partition_id AND s.position = u.position AND s.group_id = 0)
 OR EXISTS (SELECT 1 FROM fairlane.cancellations c
            WHERE c.partition_id = u.partition_id AND c.position = u.position AND c.group_id = 0)
 OR EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = u.partition_id
            AND (k.committed > u.position
                 OR EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = u.partition_id AND s.position = u.position
                            AND s.group_id = k.group_id)
                 -- Unordered lanes: delivered, and neither held nor waiting for another attempt.
                 OR k.claimed > u.position
                    AND NOT EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = u.partition_id
                                    AND c.group_id = k.group_id AND c.first_pos <= u.position AND c.upto > u.position)
                    AND NOT EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = u.partition_id
                                    AND f.group_id = k.group_id AND f.position = u.position))))

-- part: running
-- True if a consumer of some group holds the message.
(EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = u.partition_id AND k.lease IS NOT NULL
         AND k.ready_at > coalesce(:now, clock_timestamp()) AND k.lease_end > u.position)
 OR EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = u.partition_id AND c.first_pos <= u.position
            AND c.upto > u.position AND c.ends_at > coalesce(:now, clock_timestamp()))
 OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = u.partition_id AND f.position = u.position
            AND f.token IS NOT NULL AND f.due_at > coalesce(:now, clock_timestamp())))

-- name: open
-- Messages of these keys that no group has finished.
SELECT u.queue_id, u.key, u.partition_id, u.position, u.transaction_id, u.message_id, u.due_at, {running} AS running
FROM unnest(:queue_ids::bigint[], :keys::text[]) w(queue_id, key)
JOIN fairlane.unique_keys u ON u.queue_id = w.queue_id AND u.key = w.key
WHERE u.position IS NULL OR NOT {finished}

-- name: lock (postgres, lock)
SELECT pg_advisory_xact_lock(l.id) FROM unnest(:locks::bigint[]) l(id)

-- name: lock_rows (postgres, lock)
SELECT u.key FROM fairlane.unique_keys u
WHERE (u.queue_id, u.key) IN (SELECT w.queue_id, w.key FROM unnest(:queue_ids::bigint[], :keys::text[]) w(queue_id, key))
ORDER BY u.queue_id, u.key FOR KEY SHARE

-- name: keep
INSERT INTO fairlane.unique_keys AS x (queue_id, key, partition_id, position, transaction_id, message_id, due_at)
SELECT u.queue_id, u.key, u.partition_id, u.position, u.transaction_id, u.message_id, u.due_at
FROM unnest(:queue_ids::bigint[], :keys::text[], :partition_ids::bigint[], :positions::bigint[], :transaction_ids::text[], :message_ids::text[], :due_at::timestamptz[])
     u(queue_id, key, partition_id, position, transaction_id, message_id, due_at)
WHERE true
ON CONFLICT (queue_id, key) DO UPDATE
SET partition_id = excluded.partition_id, position = excluded.position, transaction_id = excluded.transaction_id,
    message_id = excluded.message_id, due_at = excluded.due_at

-- name: place
-- A scheduled message has become due.
UPDATE fairlane.unique_keys AS u SET position = :position
WHERE u.queue_id = :queue_id AND u.key = :key AND u.transaction_id = :transaction_id AND u.position IS NULL

-- name: free
-- A scheduled message was deleted.
DELETE FROM fairlane.unique_keys AS u
WHERE u.queue_id = :queue_id AND u.key = :key AND u.transaction_id = :transaction_id AND u.position IS NULL

-- name: forget (postgres)
-- Some keys whose messages every group has finished, in the partitions that get new ones.
WITH o AS MATERIALIZED (
    SELECT u.queue_id, u.key FROM fairlane.unique_keys u
    WHERE u.partition_id = ANY (:partition_ids)
      AND (u.position < (SELECT min(k.committed) FROM fairlane.cursors k WHERE k.partition_id = u.partition_id)
           OR u.position IS NULL AND u.due_at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds))
    ORDER BY u.partition_id, u.position LIMIT 20 FOR UPDATE SKIP LOCKED
)
DELETE FROM fairlane.unique_keys x USING o WHERE x.queue_id = o.queue_id AND x.key = o.key

-- name: forget (sqlite)
delete from unique_keys where (queue_id, key) in (
    select u.queue_id, u.key from unique_keys u
    where u.partition_id in (select value from json_each(:partition_ids))
      and (u.position < (select min(k.committed) from cursors k where k.partition_id = u.partition_id)
           or u.position is null and u.due_at < :now - :seconds * 1000000)
    order by u.partition_id, u.position limit 20
)
