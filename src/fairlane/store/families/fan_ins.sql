-- A part has ended if its message has, for the group of the fan-in. Acks, expiry, cancellation and so on change only the lane, as
-- for every other message. These statements read what they left, so no way to end a message can be missed.

-- part: standing
FROM fairlane.fan_in_parts p
LEFT JOIN fairlane.groups g ON g.queue_id = p.queue_id AND g.name = p.group_name
LEFT JOIN fairlane.cursors k ON k.partition_id = p.partition_id AND k.group_id = g.id

-- part: status
CASE WHEN p.status IS NOT NULL THEN p.status
     WHEN EXISTS (SELECT 1 FROM fairlane.dead_letters d WHERE d.partition_id = p.partition_id AND d.group_id = g.id
                  AND d.position = p.position) THEN 'dead_letter'
     WHEN EXISTS (SELECT 1 FROM fairlane.cancellations c WHERE c.partition_id = p.partition_id
                  AND c.group_id = coalesce(g.id, 0) AND c.position = p.position) THEN 'cancelled'
     WHEN EXISTS (SELECT 1 FROM fairlane.results r WHERE r.partition_id = p.partition_id AND r.group_id = g.id
                  AND r.position = p.position) THEN 'completed'
     WHEN EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = p.partition_id AND s.position = p.position
                  AND s.group_id = 0) THEN 'deleted'
     WHEN k.committed > p.position THEN 'completed'
     WHEN k.failing AND EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = p.partition_id
                                AND s.position = p.position AND s.group_id = g.id) THEN 'completed'
     -- Unordered lanes: delivered, and neither held nor waiting for another attempt.
     WHEN k.claimed > p.position
          AND NOT EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = p.partition_id AND c.group_id = g.id
                          AND c.first_pos <= p.position AND c.upto > p.position)
          AND NOT EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = p.partition_id AND f.group_id = g.id
                          AND f.position = p.position) THEN 'completed'
     WHEN NOT EXISTS (SELECT 1 FROM fairlane.partitions t JOIN fairlane.queues q ON q.id = t.queue_id
                      WHERE t.id = p.partition_id AND t.start <= p.position) THEN 'deleted' END

-- name: add
INSERT INTO fairlane.fan_ins AS f (tenant, id, total, group_name, queue, callback, created_at)
VALUES (:tenant, :id, :total, :group_name, :queue, :callback, coalesce(:now, clock_timestamp()))
ON CONFLICT (tenant, id) DO NOTHING RETURNING id

-- name: add_parts
INSERT INTO fairlane.fan_in_parts
       (tenant, fan_in, part, queue_id, partition_id, position, group_name, queue, partition, transaction_id)
SELECT :tenant, :id, u.part, x.queue_id, u.partition_id, u.position, :group_name, u.queue, x.name, u.transaction_id
FROM unnest(:parts::int[], :partition_ids::bigint[], :positions::bigint[], :queues::text[], :transaction_ids::text[])
     u(part, partition_id, position, queue, transaction_id)
JOIN fairlane.partitions x ON x.id = u.partition_id

-- part: lock (postgres)
FOR UPDATE OF p SKIP LOCKED

-- part: lock (sqlite)

-- part: settle
UPDATE fairlane.fan_in_parts AS x SET status = e.status, ended_at = coalesce(:now, clock_timestamp()),
    error = (SELECT d.error FROM fairlane.dead_letters d WHERE e.status = 'dead_letter'
             AND d.partition_id = x.partition_id AND d.group_id = e.group_id AND d.position = x.position),
    -- Empty for a result that is too large.
    result = (SELECT CASE WHEN length(r.result) <= :bytes THEN r.result ELSE substr(r.result, 1, 0) END
              FROM fairlane.results r WHERE e.status = 'completed'
              AND r.partition_id = x.partition_id AND r.group_id = e.group_id AND r.position = x.position)

-- part: settled
WHERE x.tenant = e.of_tenant AND x.fan_in = e.of_fan_in AND x.part = e.of_part AND x.status IS NULL
RETURNING fan_in

-- name: settle
-- Two brokers may do this at once, so each skips the rows of the other.
{settle}
FROM (SELECT p.tenant AS of_tenant, p.fan_in AS of_fan_in, p.part AS of_part, g.id AS group_id, {status} AS status
      {standing}
      WHERE p.status IS NULL AND p.partition_id = ANY (:partition_ids) AND {status} IS NOT NULL
      LIMIT :limit {lock}) e
{settled}

-- name: settle_all
{settle}
FROM (SELECT p.tenant AS of_tenant, p.fan_in AS of_fan_in, p.part AS of_part, g.id AS group_id, {status} AS status
      {standing}
      WHERE p.status IS NULL AND {status} IS NOT NULL
      LIMIT :limit {lock}) e
{settled}

-- name: open_queues
-- 0 for fan-ins that only wait for their callback.
SELECT DISTINCT p.queue_id FROM fairlane.fan_in_parts p WHERE p.status IS NULL
UNION ALL
SELECT 0 WHERE EXISTS (SELECT 1 FROM fairlane.fan_ins f WHERE f.ended_at IS NULL)

-- part: ready
SELECT f.tenant, f.id FROM fairlane.fan_ins f
WHERE f.ended_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM fairlane.fan_in_parts p WHERE p.tenant = f.tenant AND p.fan_in = f.id AND p.status IS NULL)

-- name: ready
{ready} AND f.id = ANY (:ids) ORDER BY f.created_at LIMIT :limit

-- name: all_ready
{ready} ORDER BY f.created_at LIMIT :limit

-- name: parts_of
SELECT p.part, p.queue, p.partition, p.partition_id, p.position, p.transaction_id, {status} AS status, p.error, p.ended_at, p.result
{standing}
WHERE p.tenant = :tenant AND p.fan_in = :id AND p.part >= :first ORDER BY p.part LIMIT :limit

-- name: end
-- Locks the row before any other of the transaction. A second broker waits here, and then finds that it has ended.
UPDATE fairlane.fan_ins AS f SET ended_at = coalesce(:now, clock_timestamp()), error = NULL
WHERE f.tenant = :tenant AND f.id = :id AND f.ended_at IS NULL RETURNING id

-- name: refuse
UPDATE fairlane.fan_ins AS f SET error = :error
WHERE f.tenant = :tenant AND f.id = :id AND f.ended_at IS NULL AND f.error IS DISTINCT FROM :error

-- part: counted
SELECT f.id, f.queue, f.group_name, f.total, f.created_at, f.ended_at, f.error, f.callback,
       (SELECT count(*) FROM (SELECT {status} AS status {standing} WHERE p.tenant = f.tenant AND p.fan_in = f.id) c
        WHERE c.status = 'completed'),
       (SELECT count(*) FROM (SELECT {status} AS status {standing} WHERE p.tenant = f.tenant AND p.fan_in = f.id) c
        WHERE c.status <> 'completed')
FROM fairlane.fan_ins f

-- name: get
{counted} WHERE f.tenant = :tenant AND f.id = :id

-- name: newest
{counted} WHERE f.tenant = :tenant ORDER BY f.id DESC LIMIT :limit

-- name: delete
DELETE FROM fairlane.fan_ins AS f WHERE f.tenant = :tenant AND f.id = :id RETURNING id

-- name: delete_parts
DELETE FROM fairlane.fan_in_parts AS p WHERE p.tenant = :tenant AND p.fan_in = :id

-- name: old
SELECT f.tenant, f.id FROM fairlane.fan_ins f
WHERE f.ended_at <= coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds) ORDER BY f.ended_at LIMIT :limit
