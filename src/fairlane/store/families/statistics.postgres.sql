-- Several statements count rows of one kind for each queue or partition; Python puts them together, so that a large
-- table is never multiplied by another.

-- part: held
-- The function is called for lanes of unordered queues alone: a condition on the join would be looked at after the call.
LEFT JOIN LATERAL (SELECT x.* FROM fairlane.holdings(k.shard, k.partition_id, k.group_id, coalesce(:now, clock_timestamp())) x
                   WHERE k.claimed > 0 OFFSET 0) h ON true

-- name: queues_there
SELECT q.id FROM fairlane.queues q WHERE q.id = ANY (:queue_ids);

-- name: partitions_there
SELECT p.shard, p.id, p.name::text, p.start, p.head, p.created_at, p.last_at, s.created_at AS oldest_at
FROM (SELECT * FROM fairlane.partitions x WHERE x.shard = :shard AND x.queue_id = :queue_id AND x.name > :after
      ORDER BY x.name LIMIT :limit) p
LEFT JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.shard = p.shard AND x.partition_id = p.id AND x.first_pos <= p.start AND p.start < p.head
    ORDER BY x.first_pos DESC LIMIT 1) s ON true
ORDER BY p.name;

-- name: oldest
SELECT q.id, min(s.created_at) AS oldest_at
FROM unnest(:queue_ids::bigint[]) q(id)
CROSS JOIN LATERAL (SELECT * FROM fairlane.partitions x WHERE x.shard = :shard AND x.queue_id = q.id AND x.start < x.head
                    ORDER BY x.name LIMIT :partitions) p
CROSS JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.shard = :shard AND x.partition_id = p.id AND x.first_pos <= p.start ORDER BY x.first_pos DESC LIMIT 1) s
GROUP BY q.id;

-- name: logs_of_queues
SELECT x.queue_id AS id, count(*) AS partitions, sum(x.head - x.start)::bigint AS total,
       sum(x.head - x.done + CASE WHEN x.unordered THEN fairlane.in_flight(:shard, x.id, x.done) ELSE 0 END)::bigint AS unfinished,
       sum(x.leased)::bigint AS leased,
       max(x.last_at) FILTER (WHERE x.head > 0) AS last_at
FROM (SELECT p.id, p.queue_id, p.start, p.head, p.last_at, coalesce(min(greatest(k.committed, k.claimed)) FILTER (WHERE g.counts), p.start) AS done,
             bool_or(k.claimed > 0) AS unordered,
             coalesce(max(CASE WHEN k.claimed > 0 THEN h.leased ELSE k.lease_end - k.committed END) FILTER (
                          WHERE k.claimed > 0 OR k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp())), 0) AS leased
      FROM fairlane.partitions p
      LEFT JOIN fairlane.cursors k ON k.shard = p.shard AND k.partition_id = p.id
      LEFT JOIN fairlane.groups g ON g.id = k.group_id
      {held}
      WHERE p.shard = :shard AND p.queue_id = ANY (:ids) GROUP BY p.shard, p.id, p.epoch) x
GROUP BY x.queue_id;

-- name: logs_of_partitions
SELECT p.id, 1::bigint AS partitions, p.head - p.start AS total, p.head - coalesce(min(greatest(k.committed, k.claimed)) FILTER (WHERE g.counts), p.start)
           + CASE WHEN bool_or(k.claimed > 0)
                  THEN fairlane.in_flight(:shard, p.id, min(greatest(k.committed, k.claimed)) FILTER (WHERE g.counts)) ELSE 0 END
           AS unfinished,
       coalesce(max(CASE WHEN k.claimed > 0 THEN h.leased ELSE k.lease_end - k.committed END) FILTER (
                    WHERE k.claimed > 0 OR k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp())), 0) AS leased,
       NULL::timestamptz AS last_at
FROM fairlane.partitions p
LEFT JOIN fairlane.cursors k ON k.shard = p.shard AND k.partition_id = p.id
LEFT JOIN fairlane.groups g ON g.id = k.group_id
{held}
WHERE p.shard = :shard AND p.id = ANY (:ids) GROUP BY p.shard, p.id, p.epoch;

-- name: holes_of_queues
SELECT p.queue_id AS id, count(*) AS holes, count(*) FILTER (WHERE x.position >= d.done) AS open
FROM fairlane.skips x
JOIN fairlane.partitions p ON p.shard = x.shard AND p.id = x.partition_id
CROSS JOIN LATERAL (SELECT coalesce(min(greatest(k.committed, k.claimed)), p.start) AS done FROM fairlane.counting k
                    WHERE k.shard = p.shard AND k.partition_id = p.id) d
WHERE x.shard = :shard AND x.group_id = 0 AND x.position >= p.start AND p.queue_id = ANY (:ids) GROUP BY p.queue_id;

-- name: holes_of_partitions
SELECT p.id, count(*) AS holes, count(*) FILTER (WHERE x.position >= d.done) AS open
FROM fairlane.skips x
JOIN fairlane.partitions p ON p.shard = x.shard AND p.id = x.partition_id
CROSS JOIN LATERAL (SELECT coalesce(min(greatest(k.committed, k.claimed)), p.start) AS done FROM fairlane.counting k
                    WHERE k.shard = p.shard AND k.partition_id = p.id) d
WHERE x.shard = :shard AND x.partition_id = ANY (:ids) AND x.group_id = 0 AND x.position >= p.start GROUP BY p.id;

-- name: failures_of_queues
SELECT p.queue_id AS id, count(*) AS n
FROM fairlane.failures f JOIN fairlane.partitions p ON p.shard = f.shard AND p.id = f.partition_id
WHERE f.shard = :shard AND p.queue_id = ANY (:ids) GROUP BY p.queue_id;

-- name: failures_of_partitions
SELECT f.partition_id AS id, count(*) AS n FROM fairlane.failures f
WHERE f.shard = :shard AND f.partition_id = ANY (:ids) GROUP BY f.partition_id;

-- name: dead_of_queues
SELECT d.queue_id AS id, count(*) AS n FROM fairlane.dead_letters d
WHERE d.shard = :shard AND d.queue_id = ANY (:ids) AND d.replayed_at IS NULL GROUP BY d.queue_id;

-- name: dead_of_partitions
SELECT d.partition_id AS id, count(*) AS n FROM fairlane.dead_letters d
WHERE d.shard = :shard AND d.partition_id = ANY (:ids) AND d.replayed_at IS NULL GROUP BY d.partition_id;

-- name: groups_there
SELECT g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seed_shard IS NOT NULL AS seeding
FROM fairlane.groups g WHERE g.queue_id = ANY (:queue_ids);

-- name: groups
SELECT k.group_id, count(*) AS lanes, count(*) FILTER (WHERE p.head > k.committed) AS lagging,
       sum(p.head - k.committed - CASE WHEN k.claimed > k.committed THEN k.claimed - k.committed - h.open ELSE 0 END)::bigint AS lag, min(s.created_at) AS oldest_at, sum(k.committed)::bigint AS finished,
       count(*) FILTER (WHERE h.leased > 0 OR k.lease IS NOT NULL AND k.ready_at > t.now) AS leases,
       coalesce(sum(k.lease_end - k.committed) FILTER (WHERE k.lease IS NOT NULL AND k.ready_at > t.now), 0)::bigint
           + coalesce(sum(h.leased), 0)::bigint AS leased,
       sum(k.dead)::bigint AS dead,
       count(*) FILTER (WHERE (k.failing OR k.claimed > 0) AND EXISTS (
           SELECT 1 FROM fairlane.failures f WHERE f.shard = :shard AND f.partition_id = k.partition_id AND f.group_id = k.group_id
           AND f.attempts > 1 AND f.error = 'Partition lease expired')) AS losing,
       max(k.leased_at) AS taken_at
FROM fairlane.groups g
JOIN fairlane.partitions p ON p.shard = :shard AND p.queue_id = g.queue_id
JOIN fairlane.cursors k ON k.shard = :shard AND k.partition_id = p.id AND k.group_id = g.id
CROSS JOIN (SELECT coalesce(:now, clock_timestamp()) AS now) t
{held}
LEFT JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.shard = :shard AND x.partition_id = p.id AND x.first_pos <= k.committed AND k.committed < p.head
    ORDER BY x.first_pos DESC LIMIT 1) s ON true
WHERE g.queue_id = ANY (:queue_ids) GROUP BY k.group_id;

-- name: skips_of_groups
SELECT k.group_id AS id, count(*) AS n
FROM fairlane.skips x
JOIN fairlane.partitions p ON p.shard = x.shard AND p.id = x.partition_id
JOIN fairlane.cursors k ON k.shard = x.shard AND k.partition_id = x.partition_id
                       AND greatest(k.committed, k.claimed) <= x.position
                       AND x.group_id IN (0, k.group_id)
WHERE x.shard = :shard AND p.queue_id = ANY (:queue_ids) GROUP BY k.group_id;

-- name: lagging
SELECT g.queue_id, g.name AS "group", p.shard, p.id, p.name::text AS partition_name,
       p.head - k.committed - CASE WHEN k.claimed > k.committed THEN k.claimed - k.committed - h.open ELSE 0 END
           - (SELECT count(*) FROM fairlane.skips x
                               WHERE x.shard = :shard AND x.partition_id = p.id AND x.position >= greatest(k.committed, k.claimed)
                                 AND x.group_id IN (0, g.id)) AS lag,
       s.created_at AS oldest_at,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp()) THEN k.ready_at END AS lease_ends_at
FROM fairlane.groups g
JOIN fairlane.partitions p ON p.shard = :shard AND p.queue_id = g.queue_id
JOIN fairlane.cursors k ON k.shard = :shard AND k.partition_id = p.id AND k.group_id = g.id AND k.committed < p.head
{held}
CROSS JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.shard = :shard AND x.partition_id = p.id AND x.first_pos <= k.committed
    ORDER BY x.first_pos DESC LIMIT 1) s
WHERE g.queue_id = ANY (:queue_ids) AND s.created_at < :oldest_before
ORDER BY s.created_at, p.name, g.name COLLATE "C" LIMIT :limit;

-- name: leases
SELECT g.queue_id, g.name AS "group", k.shard, k.partition_id, p.name::text AS partition_name, k.group_id, k.lease, k.lease_start AS first,
       k.lease_end AS upto, k.committed, k.leased_at, k.ready_at AS ends_at
FROM fairlane.groups g
JOIN fairlane.cursors k ON k.shard = :shard AND k.group_id = g.id AND k.ready_at > coalesce(:now, clock_timestamp()) AND k.ready_at < :ends_before
     AND k.lease IS NOT NULL
JOIN fairlane.partitions p ON p.shard = :shard AND p.id = k.partition_id
WHERE g.queue_id = ANY (:queue_ids) AND (:group::text IS NULL OR g.name = :group)
ORDER BY k.ready_at, k.partition_id, k.group_id LIMIT :limit;

-- name: standings
SELECT k.shard, k.partition_id, g.name AS "group", k.committed,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN k.lease_end END AS leased_until,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN k.ready_at END AS lease_ends_at,
       ARRAY(SELECT x.position FROM fairlane.skips x WHERE k.failing AND x.shard = k.shard AND x.partition_id = k.partition_id
             AND x.position >= k.committed AND x.group_id = k.group_id) AS ahead
FROM fairlane.cursors k
JOIN fairlane.groups g ON g.id = k.group_id
CROSS JOIN (SELECT coalesce(:now, clock_timestamp()) AS now) t
WHERE k.shard = :shard AND k.partition_id = ANY (:ids) ORDER BY k.partition_id, g.name COLLATE "C";

-- name: dead_among
SELECT DISTINCT d.shard, d.partition_id, d.position FROM fairlane.dead_letters d
JOIN unnest(:ids::bigint[], :positions::bigint[]) u(partition_id, position)
  ON u.partition_id = d.partition_id AND u.position = d.position
WHERE d.shard = :shard;

-- name: stopped
SELECT g.queue_id, g.name AS "group", p.name::text AS partition, k.parked, f.error, f.failed_at
FROM fairlane.groups g
JOIN fairlane.cursors k ON k.shard = :shard AND k.group_id = g.id AND k.ready_at = fairlane.never()
JOIN fairlane.partitions p ON p.shard = :shard AND p.id = k.partition_id AND p.paused_at IS NULL
LEFT JOIN fairlane.failures f ON f.shard = :shard AND f.partition_id = k.partition_id AND f.group_id = k.group_id AND f.position = k.committed
WHERE g.queue_id = ANY (:queue_ids) LIMIT :limit;
