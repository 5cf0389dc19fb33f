-- name: get
SELECT g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seed_shard IS NOT NULL AS seeding
FROM fairlane.groups g WHERE g.queue_id = $1 AND g.name = $2;

-- name: list
SELECT g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seed_shard IS NOT NULL AS seeding
FROM fairlane.groups g WHERE g.queue_id = $1 ORDER BY g.name COLLATE "C";

-- name: lock_queue (lock)
SELECT (q.options ->> 'max_size')::bigint AS max_size FROM fairlane.queues q WHERE q.id = $1 FOR UPDATE;

-- name: queue_of (in by_id)
SELECT g.queue_id FROM fairlane.groups g WHERE g.id = $1;

-- name: make
INSERT INTO fairlane.groups (queue_id, name, mode, from_at, conflation, look, created_at, seed_shard, seed_after)
VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, clock_timestamp()), $8, '')
RETURNING id;

-- name: consumed
UPDATE fairlane.groups g SET look = false WHERE g.id = $1;

-- name: weigh
-- Which groups of a queue count: those of consumers; where messages become commands, not also the one that nobody named; and
-- all of them if that leaves none.
UPDATE fairlane.groups g SET counts = w.own OR NOT w.any_own
FROM (SELECT x.id, x.own, bool_or(x.own) OVER () AS any_own
      FROM (SELECT o.id, NOT o.look AND NOT (o.name = '__QUEUE_MODE__' AND EXISTS (
                             SELECT 1 FROM fairlane.groups c WHERE c.queue_id = $1 AND c.name = '__COMMANDS__')) AS own
            FROM fairlane.groups o WHERE o.queue_id = $1) x) w
WHERE g.id = w.id AND g.counts <> (w.own OR NOT w.any_own);

-- name: seeding
SELECT g.queue_id, g.mode, coalesce(g.from_at, g.created_at) AS from_at, g.seed_shard, g.seed_after
FROM fairlane.groups g WHERE g.id = $1 AND g.seed_shard IS NOT NULL;

-- name: seed (steps)
SELECT fairlane.seed($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: set_seeding
UPDATE fairlane.groups g SET seed_shard = $2, seed_after = $3 WHERE g.id = $1;

-- name: lanes
SELECT p.shard, p.id, p.name::text, p.start, p.head, k.committed, k.parked, p.paused_at,
       k.ready_at = fairlane.never() AS stopped, nullif(coalesce(k.ready_at, h.next_at), fairlane.never()) AS ready_at, k.dead, k.expired, p.last_at, s.created_at AS oldest_at,
       (SELECT count(*) FROM fairlane.skips x
        WHERE k.failing AND x.shard = p.shard AND x.partition_id = p.id AND x.group_id IN (0, k.group_id)
          AND x.position >= CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN greatest(k.committed, k.lease_end)
                                 ELSE greatest(k.committed, k.claimed) END)
           + CASE WHEN k.claimed > k.committed THEN k.claimed - k.committed - h.open ELSE 0 END AS skipped,
       coalesce(h.leased, 0) AS in_flight, p.open_operations,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN k.lease_end END AS leased_until,
       coalesce(f.attempts, 0) AS attempts, f.error
FROM fairlane.partitions p
JOIN fairlane.cursors k ON k.shard = p.shard AND k.partition_id = p.id AND k.group_id = $3
CROSS JOIN (SELECT coalesce($7, clock_timestamp()) AS now) t
LEFT JOIN LATERAL fairlane.holdings(k.shard, k.partition_id, k.group_id, t.now) h ON k.claimed > 0
LEFT JOIN fairlane.failures f ON f.shard = k.shard AND f.partition_id = k.partition_id AND f.group_id = k.group_id
                             AND f.position = k.committed
LEFT JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.shard = p.shard AND x.partition_id = p.id AND x.first_pos <= k.committed AND k.committed < p.head
    ORDER BY x.first_pos DESC LIMIT 1) s ON true
WHERE p.shard = ANY ($1) AND p.queue_id = $2 AND p.name > $4 AND ($5 = 0 OR p.id = $5) ORDER BY p.name LIMIT $6;

-- name: seek (steps)
SELECT fairlane.seek($1, $2, $3, $4, $5, $6, $7, $8);

-- name: delete
DELETE FROM fairlane.groups g WHERE g.id = $1;

-- name: partition_ids (lock)
SELECT p.id FROM fairlane.partitions p WHERE p.shard = $1 AND p.queue_id = $2 ORDER BY p.id FOR NO KEY UPDATE;

-- name: lock_cursors (lock)
SELECT k.partition_id FROM fairlane.cursors k
WHERE k.shard = $1 AND k.partition_id = ANY ($2) AND k.group_id = $3 ORDER BY k.partition_id FOR UPDATE;

-- name: delete_cursors
DELETE FROM fairlane.cursors x WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND x.group_id = $3;

-- name: delete_claims
DELETE FROM fairlane.claims x WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND x.group_id = $3;

-- name: delete_failures
DELETE FROM fairlane.failures x WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND x.group_id = $3;

-- name: delete_dead_letters
DELETE FROM fairlane.dead_letters x WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND x.group_id = $3;

-- name: delete_skips
DELETE FROM fairlane.skips x WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND x.group_id = $3;

-- name: begin_anew
UPDATE fairlane.groups g
SET seed_shard = $2, seed_after = '', from_at = CASE WHEN g.mode = 'new' THEN coalesce(g.from_at, g.created_at) ELSE g.from_at END
WHERE g.id = $1;

-- name: resubscribe
UPDATE fairlane.groups g SET mode = $2, from_at = $3 WHERE g.id = $1 RETURNING g.id;

-- name: delete_results
DELETE FROM fairlane.results x WHERE x.shard = $1 AND x.partition_id = ANY ($2) AND x.group_id = $3;

-- name: result
SELECT r.result FROM fairlane.results r WHERE r.shard = $1 AND r.partition_id = $2 AND r.group_id = $3 AND r.position = $4;

-- name: next_ready_at
SELECT least(
    (SELECT k.ready_at FROM fairlane.cursors k
     WHERE k.shard = $1 AND k.group_id = $2 AND k.ready_at < fairlane.never() ORDER BY k.ready_at LIMIT 1),
    (SELECT f.due_at FROM fairlane.failures f
     WHERE f.shard = $1 AND f.group_id = $2 AND f.due_at IS NOT NULL ORDER BY f.due_at LIMIT 1),
    (SELECT c.ends_at FROM fairlane.claims c WHERE c.shard = $1 AND c.group_id = $2 ORDER BY c.ends_at LIMIT 1)) AS ready_at;

-- name: asleep
-- One snapshot: a push moves the head and wakes the lane in one commit, so whoever is found here was missed.
SELECT max(x.id) AS last,
       coalesce(array_agg(x.id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}') AS ids,
       coalesce(array_agg(k.group_id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}') AS groups,
       coalesce(array_agg(x.queue_id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}') AS queues
FROM (SELECT p.id, p.queue_id, p.head, p.paused_at FROM fairlane.partitions p
      WHERE p.shard = $1 AND p.id > $2 ORDER BY p.id LIMIT $3) x
LEFT JOIN fairlane.cursors k ON k.shard = $1 AND k.partition_id = x.id AND (
    k.ready_at IS NULL AND greatest(k.committed, k.claimed) < x.head
    -- Or stopped, and nobody paused or parked it, nor is its message out of attempts. That is asked of stopped lanes alone.
    OR coalesce(k.ready_at = fairlane.never(), false) AND NOT k.parked AND x.paused_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM fairlane.failures f JOIN fairlane.queues q ON q.id = x.queue_id
        WHERE f.shard = $1 AND f.partition_id = x.id AND f.group_id = k.group_id AND f.position = k.committed
          AND f.attempts > (q.options ->> 'retry_limit')::int AND q.options ->> 'on_exhausted' <> 'dead_letter'));

-- name: rouse
-- Whoever holds a cursor is about to decide about it: it is looked at again in the next round.
UPDATE fairlane.cursors k SET ready_at = coalesce($4, clock_timestamp())
FROM (SELECT c.partition_id, c.group_id FROM fairlane.cursors c
      JOIN unnest($2::bigint[], $3::bigint[]) u(id, group_id) ON u.id = c.partition_id AND u.group_id = c.group_id
      WHERE c.shard = $1 AND (c.ready_at IS NULL OR c.ready_at = fairlane.never()) FOR UPDATE OF c SKIP LOCKED) s
WHERE k.shard = $1 AND k.partition_id = s.partition_id AND k.group_id = s.group_id;
