-- part: group
SELECT g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seed_shard IS NOT NULL
FROM fairlane.groups g WHERE g.queue_id = :queue_id

-- name: get
{group} AND g.name = :name;

-- name: list
{group} ORDER BY g.name COLLATE "C";

-- name: everywhere
SELECT g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seed_shard IS NOT NULL
FROM fairlane.tenants t JOIN fairlane.queues q ON q.tenant_id = t.id JOIN fairlane.groups g ON g.queue_id = q.id
WHERE t.name = :tenant AND g.name = :name;

-- name: owned
SELECT q.id FROM fairlane.groups g JOIN fairlane.queues q ON q.id = g.queue_id JOIN fairlane.tenants t ON t.id = q.tenant_id
WHERE g.id = :group_id AND t.name = :tenant;

-- name: queue_of
SELECT g.queue_id FROM fairlane.groups g WHERE g.id = :group_id;

-- name: subscribe (steps)
SELECT * FROM fairlane.subscribe(:queue_id, :name, :mode, :from_at, :conflation, :look, :limit, :now);

-- name: weigh
SELECT fairlane.weigh(:queue_id);

-- name: seed (steps)
SELECT fairlane.seed_group(:group_id, false, :limit, :now);

-- part: lane
SELECT p.shard, p.id, p.name::text, p.start, p.head, k.committed,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN k.lease_end END,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN k.ready_at END,
       nullif(coalesce(k.ready_at, h.next_at), fairlane.never()), coalesce(f.attempts, 0), f.error,
       CASE WHEN k.parked THEN 'parked' WHEN p.paused_at IS NOT NULL THEN 'paused'
            WHEN k.ready_at = fairlane.never() THEN 'blocked' END,
       k.dead, p.last_at, k.expired, coalesce(h.leased, 0),
       (SELECT count(*) FROM fairlane.skips x
        WHERE k.failing AND x.shard = p.shard AND x.partition_id = p.id AND x.group_id IN (0, k.group_id)
          AND x.position >= CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN greatest(k.committed, k.lease_end)
                                 ELSE greatest(k.committed, k.claimed) END)
           + CASE WHEN k.claimed > k.committed THEN k.claimed - k.committed - h.open ELSE 0 END,
       p.open_operations, s.created_at, f.retry_limit

-- part: with_lane
JOIN fairlane.cursors k ON k.shard = p.shard AND k.partition_id = p.id AND k.group_id = :group_id
CROSS JOIN (SELECT coalesce(:now, clock_timestamp()) AS now) t
LEFT JOIN LATERAL (SELECT x.* FROM fairlane.holdings(k.shard, k.partition_id, k.group_id, t.now) x WHERE k.claimed > 0 OFFSET 0) h ON true
LEFT JOIN fairlane.failures f ON f.shard = k.shard AND f.partition_id = k.partition_id AND f.group_id = k.group_id
                             AND f.position = k.committed
LEFT JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.shard = p.shard AND x.partition_id = p.id AND x.first_pos <= k.committed AND k.committed < p.head
    ORDER BY x.first_pos DESC LIMIT 1) s ON true

-- name: lanes
-- The page first: whatever the planner thinks of the rest, it is done for these alone.
{lane}
FROM (SELECT * FROM fairlane.partitions x
      WHERE x.shard = :shard AND x.queue_id = :queue_id AND x.name > :after
        AND EXISTS (SELECT FROM fairlane.cursors c WHERE c.shard = x.shard AND c.partition_id = x.id AND c.group_id = :group_id)
      ORDER BY x.name LIMIT :limit) p
{with_lane}
ORDER BY p.name;

-- name: urgent
-- Those that have something to read: the stopped ones, then who is ready longest.
{lane}
FROM ((SELECT x.partition_id, NULL::timestamptz AS at FROM fairlane.cursors x
       WHERE x.shard = :shard AND x.group_id = :group_id AND x.ready_at = fairlane.never() LIMIT :limit)
      UNION ALL
      (SELECT x.partition_id, x.ready_at FROM fairlane.cursors x
       WHERE x.shard = :shard AND x.group_id = :group_id AND x.ready_at < fairlane.never() ORDER BY x.ready_at LIMIT :limit)) u
JOIN fairlane.partitions p ON p.shard = :shard AND p.id = u.partition_id
{with_lane}
WHERE p.queue_id = :queue_id
ORDER BY u.at NULLS FIRST, p.name LIMIT :limit;

-- name: lane
{lane}
FROM fairlane.partitions p
{with_lane}
WHERE p.queue_id = :queue_id AND p.shard = :shard AND p.id = :partition_id;

-- name: seek (steps)
SELECT fairlane.seek(:shard, :queue_id, :group_id, :partition_id, :to, :at, :position, :now);

-- name: preview_seek (steps)
SELECT count(*), coalesce(sum(greatest(0, x.committed - x.at)), 0)::bigint, coalesce(sum(greatest(0, x.at - x.committed)), 0)::bigint
FROM (SELECT k.committed,
             CASE :to::text WHEN 'beginning' THEN p.start WHEN 'end' THEN p.head
                            WHEN 'position' THEN greatest(p.start, least(p.head, :position::bigint))
                            ELSE greatest(p.start, least(p.head, fairlane.position_at(p.shard, p.id, :at))) END AS at
      FROM fairlane.partitions p
      JOIN fairlane.cursors k ON k.shard = p.shard AND k.partition_id = p.id AND k.group_id = :group_id
      WHERE p.shard = :shard AND p.queue_id = :queue_id ORDER BY p.id LIMIT :limit) x;

-- name: delete
DELETE FROM fairlane.groups g WHERE g.id = :group_id;

-- name: begin_anew
UPDATE fairlane.groups g
SET seed_shard = :shard, seed_after = '',
    from_at = CASE WHEN g.mode = 'new' THEN coalesce(g.from_at, g.created_at) ELSE g.from_at END
WHERE g.id = :group_id;

-- name: forget
SELECT fairlane.forget_lanes(:shard, :queue_id, :group_id);

-- name: resubscribe
UPDATE fairlane.groups g SET mode = :mode, from_at = :from_at WHERE g.id = :group_id RETURNING g.id;

-- name: result
SELECT r.result FROM fairlane.results r
WHERE r.shard = :shard AND r.partition_id = :partition_id AND r.group_id = :group_id AND r.position = :position;

-- name: results
SELECT g.name, r.result, r.created_at FROM fairlane.partitions p
JOIN fairlane.groups g ON g.queue_id = p.queue_id
JOIN fairlane.results r ON r.shard = p.shard AND r.partition_id = p.id AND r.group_id = g.id AND r.position = :position
WHERE p.shard = :shard AND p.id = :partition_id ORDER BY g.name COLLATE "C";

-- name: next_ready
SELECT least(
    (SELECT k.ready_at FROM fairlane.cursors k
     WHERE k.shard = :shard AND k.group_id = :group_id AND k.ready_at < fairlane.never() ORDER BY k.ready_at LIMIT 1),
    (SELECT f.due_at FROM fairlane.failures f
     WHERE f.shard = :shard AND f.group_id = :group_id AND f.due_at IS NOT NULL ORDER BY f.due_at LIMIT 1),
    (SELECT c.ends_at FROM fairlane.claims c WHERE c.shard = :shard AND c.group_id = :group_id ORDER BY c.ends_at LIMIT 1));

-- name: asleep
-- One snapshot: a push moves the head and wakes the lane in one commit, so whoever is found here was missed.
SELECT max(x.id),
       coalesce(array_agg(x.id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}'),
       coalesce(array_agg(k.group_id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}'),
       coalesce(array_agg(x.queue_id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}')
FROM (SELECT p.*, max(p.last_at) OVER () AS latest, coalesce(:now, clock_timestamp()) + interval '1 s' AS ahead
      FROM (SELECT y.id, y.queue_id, y.head, y.paused_at, y.last_at FROM fairlane.partitions y
            WHERE y.shard = :shard AND y.id > :after ORDER BY y.id LIMIT :limit) p) x
LEFT JOIN fairlane.cursors k ON k.shard = :shard AND k.partition_id = x.id AND (
    k.ready_at IS NULL AND greatest(k.committed, k.claimed) < x.head
    -- Or stopped, and nobody paused or parked it, nor is its message out of attempts. That is asked of stopped lanes alone.
    OR coalesce(k.ready_at = fairlane.never(), false) AND NOT k.parked AND x.paused_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM fairlane.failures f JOIN fairlane.queues q ON q.id = x.queue_id
        WHERE f.shard = :shard AND f.partition_id = x.id AND f.group_id = k.group_id AND f.position = k.committed
          AND f.attempts > coalesce(f.retry_limit, (q.options ->> 'retry_limit')::int) AND q.options ->> 'on_exhausted' <> 'dead_letter')
    -- Or leased or failed while the clock was ahead.
    OR k.leased_at > x.ahead
    OR EXISTS (SELECT 1 FROM fairlane.failures f
               WHERE f.shard = :shard AND f.partition_id = x.id AND f.group_id = k.group_id AND f.failed_at > x.ahead)
    -- Or made ready then: the latest message shows how far ahead it was. A failure explains a later time.
    OR k.lease IS NULL AND k.ready_at > x.ahead AND k.ready_at <= x.latest AND NOT EXISTS (
        SELECT 1 FROM fairlane.failures f WHERE f.shard = :shard AND f.partition_id = x.id AND f.group_id = k.group_id
                                            AND f.position = greatest(k.committed, k.claimed)));

-- name: rouse
-- Skips locked cursors, because their holder is about to update them. The next round checks them again. If an unordered lane was
-- leased while the clock was ahead, its leases keep their remaining time, counted from now.
WITH s AS (
    SELECT c.partition_id, c.group_id, c.leased_at, t.now
    FROM (SELECT coalesce(:now, clock_timestamp()) AS now OFFSET 0) t
    CROSS JOIN fairlane.cursors c
    JOIN unnest(:ids::bigint[], :groups::bigint[]) u(id, group_id) ON u.id = c.partition_id AND u.group_id = c.group_id
    WHERE c.shard = :shard AND (
        c.ready_at IS NULL OR c.ready_at = fairlane.never() OR c.leased_at > t.now OR c.lease IS NULL AND c.ready_at > t.now
        OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.shard = :shard AND f.partition_id = c.partition_id
                     AND f.group_id = c.group_id AND f.failed_at > t.now)) FOR UPDATE OF c SKIP LOCKED),
held AS (
    UPDATE fairlane.claims m SET ends_at = least(m.ends_at, s.now + greatest(m.ends_at - s.leased_at, interval '0'))
    FROM s WHERE s.leased_at > s.now AND m.shard = :shard AND m.partition_id = s.partition_id AND m.group_id = s.group_id),
failed AS (
    UPDATE fairlane.failures f
    SET due_at = CASE WHEN f.token IS NULL AND f.failed_at > s.now
                      THEN s.now + greatest(f.due_at - f.failed_at, interval '0')
                      WHEN f.token IS NOT NULL AND s.leased_at > s.now
                      THEN least(f.due_at, s.now + greatest(f.due_at - s.leased_at, interval '0'))
                      ELSE f.due_at END,
        failed_at = least(f.failed_at, s.now), first_failed_at = least(f.first_failed_at, s.now)
    FROM s WHERE f.shard = :shard AND f.partition_id = s.partition_id AND f.group_id = s.group_id
      AND (f.failed_at > s.now OR f.token IS NOT NULL AND s.leased_at > s.now))
UPDATE fairlane.cursors k
SET ready_at = CASE WHEN k.leased_at <= s.now OR k.leased_at IS NULL THEN s.now
                    WHEN k.ready_at < fairlane.never() THEN least(k.ready_at, s.now + greatest(k.ready_at - k.leased_at, interval '0'))
                    ELSE k.ready_at END,
    leased_at = CASE WHEN k.leased_at > s.now THEN s.now ELSE k.leased_at END
FROM s WHERE k.shard = :shard AND k.partition_id = s.partition_id AND k.group_id = s.group_id;
