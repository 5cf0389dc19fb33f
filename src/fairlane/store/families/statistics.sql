-- Several statements count rows of one kind for each queue or partition. Python combines them, so that no statement joins two
-- large tables.

-- part: held (postgres)
-- LATERAL with the condition inside, so that the function runs only for lanes of unordered queues. A join condition would be
-- checked after the call.
LEFT JOIN LATERAL (SELECT x.* FROM fairlane.holdings(k.partition_id, k.group_id, coalesce(:now, clock_timestamp())) x
                   WHERE k.claimed > 0 OFFSET 0) h ON true

-- name: queues_there
SELECT q.id FROM fairlane.queues q WHERE q.id = ANY (:queue_ids)

-- name: partitions_there
SELECT p.id, p.name::text, p.start, p.head, p.created_at, p.last_at,
       CASE WHEN p.start < p.head THEN (
           SELECT s.created_at FROM fairlane.segments s
           WHERE s.partition_id = p.id AND s.first_pos <= p.start ORDER BY s.first_pos DESC LIMIT 1) END
FROM (SELECT * FROM fairlane.partitions x
      WHERE x.queue_id = :queue_id AND x.name > :after
        AND EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.id = :queue_id)
      ORDER BY x.name LIMIT :limit) p
ORDER BY p.name

-- name: oldest
SELECT q.id, (
    SELECT min((SELECT s.created_at FROM fairlane.segments s
                WHERE s.partition_id = p.id AND s.first_pos <= p.start ORDER BY s.first_pos DESC LIMIT 1))
    FROM (SELECT * FROM fairlane.partitions x WHERE x.queue_id = q.id AND x.start < x.head
          ORDER BY x.name LIMIT :partitions) p)
FROM fairlane.queues q WHERE q.id = ANY (:queue_ids)

-- name: logs_of_queues (postgres)
SELECT x.queue_id AS id, count(*) AS partitions, sum(x.head - x.start)::bigint AS total,
       sum(x.head - x.done + CASE WHEN x.unordered THEN fairlane.in_flight(x.id, x.done) ELSE 0 END)::bigint AS unfinished,
       sum(x.leased)::bigint AS leased,
       max(x.last_at) FILTER (WHERE x.head > 0) AS last_at
FROM (SELECT p.id, p.queue_id, p.start, p.head, p.last_at, coalesce(min(greatest(k.committed, k.claimed)) FILTER (WHERE g.counts), p.start) AS done,
             bool_or(k.claimed > 0) AS unordered,
             coalesce(max(CASE WHEN k.claimed > 0 THEN h.leased ELSE k.lease_end - k.committed END) FILTER (
                          WHERE k.claimed > 0 OR k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp())), 0) AS leased
      FROM fairlane.partitions p
      LEFT JOIN fairlane.cursors k ON k.partition_id = p.id
      LEFT JOIN fairlane.groups g ON g.id = k.group_id
      {held}
      WHERE p.queue_id = ANY (:ids) GROUP BY p.id, p.epoch) x
GROUP BY x.queue_id

-- part: done (sqlite)
coalesce((select min(max(k.committed, k.claimed)) from counting k where k.partition_id = p.id), p.start)

-- part: open (sqlite)
-- Messages that every group received and some group has not finished, each counted once.
(select coalesce(sum(max(0, o.upto - max(o.first_pos, o.reached))), 0)
from (
    select m.first_pos, min(m.upto, {done}) as upto, coalesce(max(min(m.upto, {done}))
        over (order by m.first_pos rows between unbounded preceding and 1 preceding), 0) as reached
    from (
        select group_id, first_pos, upto from claims where partition_id = p.id
        union all
        select group_id, position, position + 1 from failures where partition_id = p.id and due_at is not null
    ) m
    join groups g on g.id = m.group_id and g.counts
    where m.first_pos < {done}
) o)

-- part: in_flight (sqlite)
iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
        where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > :now)
    + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
        and y.due_at > :now and y.token is not null), 0)

-- part: log (sqlite)
p.head - p.start as total, p.head - {done} + iif(max(c.claimed) > 0, {open}, 0) as unfinished,
    coalesce(max(iif(c.lease is not null and c.ready_at > :now, c.lease_end - c.committed, {in_flight})), 0) as leased

-- name: logs_of_queues (sqlite)
select x.queue_id, count(*), sum(x.total), sum(x.unfinished), sum(x.leased), max(iif(x.head > 0, x.last_at, null))
from (
    select p.queue_id, p.head, p.last_at, {log}
    from partitions p left join cursors c on c.partition_id = p.id
    where p.queue_id in (select value from json_each(:ids))
    group by p.id
) x
group by x.queue_id

-- name: logs_of_partitions (postgres)
SELECT p.id, 1::bigint AS partitions, p.head - p.start AS total, p.head - coalesce(min(greatest(k.committed, k.claimed)) FILTER (WHERE g.counts), p.start)
           + CASE WHEN bool_or(k.claimed > 0)
                  THEN fairlane.in_flight(p.id, min(greatest(k.committed, k.claimed)) FILTER (WHERE g.counts)) ELSE 0 END
           AS unfinished,
       coalesce(max(CASE WHEN k.claimed > 0 THEN h.leased ELSE k.lease_end - k.committed END) FILTER (
                    WHERE k.claimed > 0 OR k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp())), 0) AS leased,
       NULL::timestamptz AS last_at
FROM fairlane.partitions p
LEFT JOIN fairlane.cursors k ON k.partition_id = p.id
LEFT JOIN fairlane.groups g ON g.id = k.group_id
{held}
WHERE p.id = ANY (:ids) GROUP BY p.id, p.epoch

-- name: logs_of_partitions (sqlite)
select p.id, 1, {log}, null
from json_each(:ids) j
cross join partitions p on p.id = j.value
left join cursors c on c.partition_id = p.id
group by p.id

-- part: holes
count(*), count(*) FILTER (WHERE x.position >= coalesce((
    SELECT min(greatest(k.committed, k.claimed)) FROM fairlane.counting k WHERE k.partition_id = p.id), p.start))

-- name: holes_of_queues
SELECT p.queue_id, {holes}
FROM fairlane.skips x CROSS JOIN fairlane.partitions p
WHERE p.id = x.partition_id AND p.queue_id = ANY (:ids) AND x.group_id = 0 AND x.position >= p.start
GROUP BY p.queue_id

-- name: holes_of_partitions
SELECT p.id, {holes}
FROM fairlane.partitions p CROSS JOIN fairlane.skips x
WHERE p.id = ANY (:ids) AND x.partition_id = p.id AND x.group_id = 0 AND x.position >= p.start
GROUP BY p.id

-- name: failures_of_queues
SELECT p.queue_id, count(*) FROM fairlane.failures f CROSS JOIN fairlane.partitions p
WHERE p.id = f.partition_id AND p.queue_id = ANY (:ids) GROUP BY p.queue_id

-- name: failures_of_partitions
SELECT f.partition_id, count(*) FROM fairlane.failures f
WHERE f.partition_id = ANY (:ids) GROUP BY f.partition_id

-- name: dead_of_queues
SELECT d.queue_id, count(*) FROM fairlane.dead_letters d
WHERE d.queue_id = ANY (:ids) AND d.replayed_at IS NULL GROUP BY d.queue_id

-- name: dead_of_partitions
SELECT d.partition_id, count(*) FROM fairlane.dead_letters d
WHERE d.partition_id = ANY (:ids) AND d.replayed_at IS NULL GROUP BY d.partition_id

-- name: groups_there
SELECT g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seed_after IS NOT NULL AS seeding
FROM fairlane.groups g WHERE g.queue_id = ANY (:queue_ids)

-- name: groups (postgres)
SELECT k.group_id, count(*) AS lanes, count(*) FILTER (WHERE p.head > k.committed) AS lagging,
       sum(p.head - k.committed - CASE WHEN k.claimed > k.committed THEN k.claimed - k.committed - h.open ELSE 0 END)::bigint AS lag, min(s.created_at) AS oldest_at, sum(k.committed)::bigint AS finished,
       count(*) FILTER (WHERE h.leased > 0 OR k.lease IS NOT NULL AND k.ready_at > t.now) AS leases,
       coalesce(sum(k.lease_end - k.committed) FILTER (WHERE k.lease IS NOT NULL AND k.ready_at > t.now), 0)::bigint
           + coalesce(sum(h.leased), 0)::bigint AS leased,
       sum(k.dead)::bigint AS dead,
       count(*) FILTER (WHERE (k.failing OR k.claimed > 0) AND EXISTS (
           SELECT 1 FROM fairlane.failures f WHERE f.partition_id = k.partition_id AND f.group_id = k.group_id
           AND f.attempts > 1 AND f.error = 'Partition lease expired')) AS losing,
       count(*) FILTER (WHERE k.ready_at = fairlane.never() AND NOT k.parked AND p.paused_at IS NULL) AS blocked,
       count(*) FILTER (WHERE k.parked) AS parked,
       count(*) FILTER (WHERE p.paused_at IS NOT NULL AND NOT k.parked) AS paused,
       count(*) FILTER (WHERE (k.failing OR k.claimed > 0) AND NOT k.parked AND p.paused_at IS NULL
           AND k.ready_at IS DISTINCT FROM fairlane.never() AND EXISTS (
           SELECT 1 FROM fairlane.failures f WHERE f.partition_id = k.partition_id AND f.group_id = k.group_id)) AS retrying,
       max(k.leased_at) AS taken_at
FROM fairlane.groups g
JOIN fairlane.partitions p ON p.queue_id = g.queue_id
JOIN fairlane.cursors k ON k.partition_id = p.id AND k.group_id = g.id
CROSS JOIN (SELECT coalesce(:now, clock_timestamp()) AS now) t
{held}
LEFT JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.partition_id = p.id AND x.first_pos <= k.committed AND k.committed < p.head
    ORDER BY x.first_pos DESC LIMIT 1) s ON true
WHERE g.queue_id = ANY (:queue_ids) GROUP BY k.group_id

-- part: redeliveries (sqlite)
(select coalesce(sum(m.upto - m.first_pos), 0) from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id)
    + (select count(*) from failures y
        where y.partition_id = c.partition_id and y.group_id = c.group_id and y.due_at is not null)

-- name: groups (sqlite)
select g.id, count(*), sum(p.head > c.committed),
    sum(p.head - c.committed - iif(c.claimed > c.committed, c.claimed - c.committed - ({redeliveries}), 0)),
    min(iif(p.head > c.committed, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1), null)),
    sum(c.committed), sum(c.lease is not null and c.ready_at > :now or {in_flight} > 0),
    sum(iif(c.lease is not null and c.ready_at > :now, c.lease_end - c.committed, {in_flight})), sum(c.dead),
    sum((c.failing or c.claimed > 0) and exists (select 1 from failures f where f.partition_id = c.partition_id
        and f.group_id = c.group_id and f.attempts > 1 and f.error = 'Partition lease expired')),
    sum(c.ready_at is :never and not c.parked and p.paused_at is null), sum(c.parked),
    sum(p.paused_at is not null and not c.parked),
    sum((c.failing or c.claimed > 0) and not c.parked and p.paused_at is null and c.ready_at is not :never and exists (
        select 1 from failures f where f.partition_id = c.partition_id and f.group_id = c.group_id)),
    max(c.leased_at)
from groups g
join partitions p on p.queue_id = g.queue_id
join cursors c on c.partition_id = p.id and c.group_id = g.id
where g.queue_id in (select value from json_each(:queue_ids))
group by g.id

-- name: skips_of_groups
SELECT k.group_id, count(*)
FROM fairlane.skips x CROSS JOIN fairlane.cursors k CROSS JOIN fairlane.partitions p
WHERE k.partition_id = x.partition_id AND greatest(k.committed, k.claimed) <= x.position AND x.group_id IN (0, k.group_id)
  AND p.id = x.partition_id AND p.queue_id = ANY (:queue_ids)
GROUP BY k.group_id

-- name: lagging (postgres)
SELECT g.queue_id, g.name AS "group", p.id, p.name::text AS partition_name,
       p.head - k.committed - CASE WHEN k.claimed > k.committed THEN k.claimed - k.committed - h.open ELSE 0 END
           - (SELECT count(*) FROM fairlane.skips x
                               WHERE x.partition_id = p.id AND x.position >= greatest(k.committed, k.claimed)
                                 AND x.group_id IN (0, g.id)) AS lag,
       s.created_at AS oldest_at,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp()) THEN k.ready_at END AS lease_ends_at
FROM fairlane.groups g
JOIN fairlane.partitions p ON p.queue_id = g.queue_id
JOIN fairlane.cursors k ON k.partition_id = p.id AND k.group_id = g.id AND k.committed < p.head
{held}
CROSS JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.partition_id = p.id AND x.first_pos <= k.committed
    ORDER BY x.first_pos DESC LIMIT 1) s
WHERE g.queue_id = ANY (:queue_ids) AND s.created_at < :oldest_before
ORDER BY s.created_at, p.name, g.name COLLATE "C" LIMIT :limit

-- name: lagging (sqlite)
select x.queue_id, x.group_name, x.id, x.name, x.lag, x.oldest_at, x.lease_ends_at
from (
    select p.queue_id, g.name as group_name, p.id, p.name, p.head - c.committed - iif(c.claimed > c.committed, c.claimed - c.committed - ({redeliveries}), 0)
            - (select count(*) from skips s
                where c.failing and s.partition_id = p.id and s.position >= max(c.committed, c.claimed) and s.group_id in (0, g.id)) as lag,
        (select s.created_at from segments s
            where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1) as oldest_at,
        iif(c.lease is not null and c.ready_at > :now, c.ready_at, null) as lease_ends_at
    from groups g
    join partitions p on p.queue_id = g.queue_id
    join cursors c on c.partition_id = p.id and c.group_id = g.id
    where g.queue_id in (select value from json_each(:queue_ids)) and p.head > c.committed
) x
where x.oldest_at < :oldest_before
order by x.oldest_at, x.name, x.group_name
limit :limit

-- name: leases
SELECT g.queue_id, g.name, k.partition_id, p.name::text, k.group_id, k.lease, k.lease_start, k.lease_end, k.committed,
       k.leased_at, k.ready_at
FROM fairlane.groups g CROSS JOIN fairlane.cursors k CROSS JOIN fairlane.partitions p
WHERE g.queue_id = ANY (:queue_ids) AND (:group::text IS NULL OR g.name = :group) AND k.group_id = g.id
  AND k.ready_at > coalesce(:now, clock_timestamp()) AND k.ready_at < :ends_before AND k.lease IS NOT NULL
  AND p.id = k.partition_id
ORDER BY k.ready_at, k.partition_id, k.group_id LIMIT :limit

-- name: standings
SELECT k.partition_id, g.name, k.committed,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp()) THEN k.lease_end END,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > coalesce(:now, clock_timestamp()) THEN k.ready_at END,
       ARRAY(SELECT x.position FROM fairlane.skips x WHERE k.failing AND x.partition_id = k.partition_id
             AND x.position >= k.committed AND x.group_id = k.group_id)
FROM fairlane.cursors k CROSS JOIN fairlane.groups g
WHERE k.partition_id = ANY (:ids) AND g.id = k.group_id ORDER BY k.partition_id, g.name COLLATE "C"

-- name: dead_among
SELECT DISTINCT d.partition_id, d.position FROM fairlane.dead_letters d
JOIN unnest(:ids::bigint[], :positions::bigint[]) u(partition_id, position)
  ON u.partition_id = d.partition_id AND u.position = d.position

-- name: stopped
SELECT g.queue_id, g.name, p.name::text, k.parked, f.error, f.failed_at
FROM fairlane.groups g CROSS JOIN fairlane.cursors k CROSS JOIN fairlane.partitions p
LEFT JOIN fairlane.failures f ON f.partition_id = k.partition_id AND f.group_id = k.group_id AND f.position = k.committed
WHERE g.queue_id = ANY (:queue_ids) AND k.group_id = g.id AND k.ready_at = fairlane.never()
  AND p.id = k.partition_id AND p.paused_at IS NULL
LIMIT :limit
