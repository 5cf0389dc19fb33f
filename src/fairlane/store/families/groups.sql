-- part: group
SELECT g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seed_after IS NOT NULL

-- name: get
{group} FROM fairlane.groups g WHERE g.queue_id = :queue_id AND g.name = :name

-- name: all
{group} FROM fairlane.groups g WHERE g.queue_id = :queue_id ORDER BY g.name COLLATE "C"

-- name: by_name
{group} FROM fairlane.tenants t CROSS JOIN fairlane.queues q CROSS JOIN fairlane.groups g
WHERE t.name = :tenant AND q.tenant_id = t.id AND g.queue_id = q.id AND g.name = :name

-- name: owned
SELECT q.id FROM fairlane.groups g JOIN fairlane.queues q ON q.id = g.queue_id JOIN fairlane.tenants t ON t.id = q.tenant_id
WHERE g.id = :group_id AND t.name = :tenant

-- name: queue_of
SELECT g.queue_id FROM fairlane.groups g WHERE g.id = :group_id

-- name: subscribe (postgres, steps)
SELECT * FROM fairlane.subscribe(:queue_id, :name, :mode, :from_at, :conflation, :look, :limit, :now)

-- name: choose_counting (postgres)
SELECT fairlane.choose_counting(:queue_id)

-- name: choose_counting (sqlite)
-- The groups that count are those of consumers. The default group does not count where messages become commands. If none is left,
-- all groups count.
update groups set counts = w.own or not w.any_own
from (
    select x.id, x.own, max(x.own) over () as any_own
    from (
        select o.id, not o.look and not (o.name = '__QUEUE_MODE__' and exists (
            select 1 from groups c where c.queue_id = :queue_id and c.name = '__COMMANDS__')) as own
        from groups o
        where o.queue_id = :queue_id
    ) x
) w
where groups.id = w.id

-- name: seed (postgres, steps)
SELECT fairlane.seed_group(:group_id, false, :limit, :now)

-- part: lane (postgres)
SELECT p.id, p.name::text, p.start, p.head, k.committed,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN k.lease_end END,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN k.ready_at END,
       nullif(coalesce(k.ready_at, h.next_at), fairlane.never()), coalesce(f.attempts, 0), f.error,
       CASE WHEN k.parked THEN 'parked' WHEN p.paused_at IS NOT NULL THEN 'paused'
            WHEN k.ready_at = fairlane.never() THEN 'blocked' END,
       k.dead, p.last_at, k.expired, coalesce(h.leased, 0),
       (SELECT count(*) FROM fairlane.skips x
        WHERE k.failing AND x.partition_id = p.id AND x.group_id IN (0, k.group_id)
          AND x.position >= CASE WHEN k.lease IS NOT NULL AND k.ready_at > t.now THEN greatest(k.committed, k.lease_end)
                                 ELSE greatest(k.committed, k.claimed) END)
           + CASE WHEN k.claimed > k.committed THEN k.claimed - k.committed - h.open ELSE 0 END,
       p.open_operations, s.created_at, f.retry_limit

-- part: with_lane (postgres)
JOIN fairlane.cursors k ON k.partition_id = p.id AND k.group_id = :group_id
CROSS JOIN (SELECT coalesce(:now, clock_timestamp()) AS now) t
LEFT JOIN LATERAL (SELECT x.* FROM fairlane.holdings(k.partition_id, k.group_id, t.now) x WHERE k.claimed > 0 OFFSET 0) h ON true
LEFT JOIN fairlane.failures f ON f.partition_id = k.partition_id AND f.group_id = k.group_id
                             AND f.position = k.committed
LEFT JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.partition_id = p.id AND x.first_pos <= k.committed AND k.committed < p.head
    ORDER BY x.first_pos DESC LIMIT 1) s ON true

-- part: in_flight (sqlite)
iif(c.claimed > 0, (select coalesce(sum(m.upto - m.first_pos), 0) from claims m
        where m.partition_id = c.partition_id and m.group_id = c.group_id and m.ends_at > :now)
    + (select count(*) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id
        and y.due_at > :now and y.token is not null), 0)

-- part: redeliveries (sqlite)
(select coalesce(sum(m.upto - m.first_pos), 0) from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id)
    + (select count(*) from failures y
        where y.partition_id = c.partition_id and y.group_id = c.group_id and y.due_at is not null)

-- part: lane (sqlite)
select p.id, p.name, p.start, p.head, c.committed,
    iif(c.lease is not null and c.ready_at > :now, c.lease_end, null),
    iif(c.lease is not null and c.ready_at > :now, c.ready_at, null),
    nullif(coalesce(c.ready_at, iif(c.claimed > 0, (select min(at) from (
        select min(m.ends_at) as at from claims m where m.partition_id = c.partition_id and m.group_id = c.group_id
        union all
        select min(y.due_at) from failures y where y.partition_id = c.partition_id and y.group_id = c.group_id)), null)), :never),
    coalesce(f.attempts, 0), f.error,
    case when c.parked then 'parked' when p.paused_at is not null then 'paused' when c.ready_at = :never then 'blocked' end,
    c.dead, p.last_at, c.expired, {in_flight},
    (select count(*) from skips x
        where c.failing and x.partition_id = p.id and x.group_id in (0, c.group_id) and x.position
            >= iif(c.lease is not null and c.ready_at > :now, max(c.committed, c.lease_end), max(c.committed, c.claimed)))
        + iif(c.claimed > c.committed, c.claimed - c.committed - ({redeliveries}), 0),
    p.open_operations,
    iif(c.committed < p.head, (select s.created_at from segments s
        where s.partition_id = p.id and s.first_pos <= c.committed order by s.first_pos desc limit 1), null),
    f.retry_limit

-- part: with_lane (sqlite)
cross join cursors c on c.partition_id = p.id and c.group_id = :group_id
left join failures f on (c.failing or c.claimed > 0) and f.partition_id = p.id and f.group_id = c.group_id and f.position = c.committed

-- name: lanes
-- The subquery is the page, so that the planner computes the rest for these rows only.
{lane}
FROM (SELECT * FROM fairlane.partitions x
      WHERE x.queue_id = :queue_id AND x.name > :after
        AND EXISTS (SELECT 1 FROM fairlane.cursors c WHERE c.partition_id = x.id AND c.group_id = :group_id)
      ORDER BY x.name LIMIT :limit) p
{with_lane}
ORDER BY p.name

-- name: urgent
-- Lanes that have messages to read: stopped ones first, then longest ready.
{lane}
FROM (SELECT * FROM (SELECT x.partition_id, NULL::timestamptz AS at FROM fairlane.cursors x
                     WHERE x.group_id = :group_id AND x.ready_at = fairlane.never() LIMIT :limit) s
      UNION ALL
      SELECT * FROM (SELECT x.partition_id, x.ready_at FROM fairlane.cursors x
                     WHERE x.group_id = :group_id AND x.ready_at < fairlane.never() ORDER BY x.ready_at LIMIT :limit) r) u
CROSS JOIN fairlane.partitions p
{with_lane}
WHERE p.id = u.partition_id AND p.queue_id = :queue_id
ORDER BY u.at NULLS FIRST, p.name LIMIT :limit

-- name: lane
{lane}
FROM fairlane.partitions p
{with_lane}
WHERE p.queue_id = :queue_id AND p.id = :partition_id

-- name: seek (postgres, steps)
SELECT fairlane.seek(:queue_id, :group_id, :partition_id, :to, :at, :position, :now)

-- name: preview_seek (postgres, steps)
SELECT count(*), coalesce(sum(greatest(0, x.committed - x.at)), 0)::bigint, coalesce(sum(greatest(0, x.at - x.committed)), 0)::bigint
FROM (SELECT k.committed,
             CASE :to::text WHEN 'beginning' THEN p.start WHEN 'end' THEN p.head
                            WHEN 'position' THEN greatest(p.start, least(p.head, :position::bigint))
                            ELSE greatest(p.start, least(p.head, fairlane.position_at(p.id, :at))) END AS at
      FROM fairlane.partitions p
      JOIN fairlane.cursors k ON k.partition_id = p.id AND k.group_id = :group_id
      WHERE p.queue_id = :queue_id ORDER BY p.id LIMIT :limit) x

-- name: delete
DELETE FROM fairlane.groups AS g WHERE g.id = :group_id

-- name: begin_anew (postgres)
UPDATE fairlane.groups g
SET seed_after = '',
    from_at = CASE WHEN g.mode = 'new' THEN coalesce(g.from_at, g.created_at) ELSE g.from_at END
WHERE g.id = :group_id

-- name: begin_anew (sqlite)
update groups set seed_after = 0, from_at = iif(mode = 'new', coalesce(from_at, created_at), from_at) where id = :group_id

-- name: forget (postgres)
SELECT fairlane.forget_lanes(:queue_id, :group_id)

-- name: forget (sqlite)
-- Answers with the number of cursors.
delete from failures where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from claims where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from skips where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from starts where group_id = :group_id;
delete from cancellations where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from results where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
delete from dead_letters where queue_id = :queue_id and group_id = :group_id;
delete from cursors where group_id = :group_id and partition_id in (select id from partitions where queue_id = :queue_id);
select changes()

-- name: resubscribe
UPDATE fairlane.groups AS g SET mode = :mode, from_at = :from_at WHERE g.id = :group_id RETURNING id

-- name: result
SELECT r.result FROM fairlane.results r
WHERE r.partition_id = :partition_id AND r.group_id = :group_id AND r.position = :position

-- name: results
SELECT g.name, r.result, r.created_at FROM fairlane.partitions p
JOIN fairlane.groups g ON g.queue_id = p.queue_id
JOIN fairlane.results r ON r.partition_id = p.id AND r.group_id = g.id AND r.position = :position
WHERE p.id = :partition_id ORDER BY g.name COLLATE "C"

-- name: failed
SELECT f.attempts, f.error, f.failed_at, f.history, f.traceback FROM fairlane.failures f
WHERE f.partition_id = :partition_id AND f.group_id = ANY (:group_ids) AND f.position = :position AND f.attempts > 0
ORDER BY f.attempts DESC LIMIT 1

-- name: asleep (postgres)
-- One snapshot. A push moves the head and wakes the lane in one commit, so a sleeping lane with messages was missed.
SELECT max(x.id),
       coalesce(array_agg(x.id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}'),
       coalesce(array_agg(k.group_id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}'),
       coalesce(array_agg(x.queue_id ORDER BY x.id, k.group_id) FILTER (WHERE k.group_id IS NOT NULL), '{}')
FROM (SELECT p.*, max(p.last_at) OVER () AS latest, coalesce(:now, clock_timestamp()) + interval '1 s' AS ahead
      FROM (SELECT y.id, y.queue_id, y.head, y.paused_at, y.last_at FROM fairlane.partitions y
            WHERE y.id > :after ORDER BY y.id LIMIT :limit) p) x
LEFT JOIN fairlane.cursors k ON k.partition_id = x.id AND (
    k.ready_at IS NULL AND greatest(k.committed, k.claimed) < x.head
    -- Or stopped, but neither paused nor parked, and its message has attempts left. Only stopped lanes pay for this check.
    OR coalesce(k.ready_at = fairlane.never(), false) AND NOT k.parked AND x.paused_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM fairlane.failures f JOIN fairlane.queues q ON q.id = x.queue_id
        WHERE f.partition_id = x.id AND f.group_id = k.group_id AND f.position = k.committed
          AND f.attempts > coalesce(f.retry_limit, (q.options ->> 'retry_limit')::int) AND q.options ->> 'on_exhausted' <> 'dead_letter')
    -- Or leased or failed while the clock was ahead.
    OR k.leased_at > x.ahead
    OR EXISTS (SELECT 1 FROM fairlane.failures f
               WHERE f.partition_id = x.id AND f.group_id = k.group_id AND f.failed_at > x.ahead)
    -- Or became ready then. The latest message shows how far ahead the clock was. A failure explains a later time.
    OR k.lease IS NULL AND k.ready_at > x.ahead AND k.ready_at <= x.latest AND NOT EXISTS (
        SELECT 1 FROM fairlane.failures f WHERE f.partition_id = x.id AND f.group_id = k.group_id
                                            AND f.position = greatest(k.committed, k.claimed)))

-- name: asleep (sqlite)
select max(p.id), json_group_array(p.id) filter (where c.group_id is not null),
    json_group_array(c.group_id) filter (where c.group_id is not null),
    json_group_array(p.queue_id) filter (where c.group_id is not null)
from (select *, max(last_at) over () as latest, :now + 1000000 as ahead
    from (select id, queue_id, head, paused_at, last_at from partitions where id > :after order by id limit :limit)) p
left join cursors c on c.partition_id = p.id and (
    c.ready_at is null and max(c.committed, c.claimed) < p.head
    -- Or stopped, but neither paused nor parked, and its message has attempts left.
    or c.ready_at = :never and not c.parked and p.paused_at is null and not exists (
        select 1 from failures f join queues q on q.id = p.queue_id
        where f.partition_id = p.id and f.group_id = c.group_id and f.position = c.committed
            and f.attempts > coalesce(f.retry_limit, q.options ->> '$.retry_limit') and q.options ->> '$.on_exhausted' <> 'dead_letter')
    -- Or leased or failed while the clock was ahead.
    or c.leased_at > p.ahead
    or exists (select 1 from failures f where f.partition_id = p.id and f.group_id = c.group_id and f.failed_at > p.ahead)
    -- Or became ready then. The latest message shows how far ahead the clock was. A failure explains a later time.
    or c.lease is null and c.ready_at > p.ahead and c.ready_at <= p.latest and not exists (
        select 1 from failures f where f.partition_id = p.id and f.group_id = c.group_id and f.position = max(c.committed, c.claimed)))

-- name: repair_wakes (postgres)
-- Skips locked cursors, because their holder is about to update them. The next round checks them again. If an unordered lane was
-- leased while the clock was ahead, its leases keep their remaining time, counted from now. One that ends before the latest of
-- them began may be older; it gets the queue's lease time at most.
WITH s AS (
    SELECT c.partition_id, c.group_id, c.leased_at, t.now, make_interval(secs => (q.options ->> 'lease_seconds')::int) AS lease_time,
           CASE WHEN c.leased_at <= t.now OR c.leased_at IS NULL THEN t.now
                WHEN c.ready_at < fairlane.never() THEN least(c.ready_at, t.now + greatest(c.ready_at - c.leased_at, interval '0'))
                ELSE c.ready_at END AS ready_at
    FROM (SELECT coalesce(:now, clock_timestamp()) AS now OFFSET 0) t
    CROSS JOIN fairlane.cursors c
    JOIN fairlane.partitions p ON p.id = c.partition_id
    JOIN fairlane.queues q ON q.id = p.queue_id
    JOIN unnest(:ids::bigint[], :groups::bigint[]) u(id, group_id) ON u.id = c.partition_id AND u.group_id = c.group_id
    WHERE (
        c.ready_at IS NULL OR c.ready_at = fairlane.never() OR c.leased_at > t.now OR c.lease IS NULL AND c.ready_at > t.now
        OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = c.partition_id
                     AND f.group_id = c.group_id AND f.failed_at > t.now)) FOR UPDATE OF c SKIP LOCKED),
held AS (
    SELECT m.partition_id, m.group_id, m.first_pos,
           least(m.ends_at, s.now + CASE WHEN m.ends_at > s.leased_at THEN m.ends_at - s.leased_at ELSE s.lease_time END) AS ends_at
    FROM s JOIN fairlane.claims m ON m.partition_id = s.partition_id AND m.group_id = s.group_id WHERE s.leased_at > s.now),
failed AS (
    SELECT f.partition_id, f.group_id, f.position, s.now,
           CASE WHEN f.token IS NULL AND f.failed_at > s.now THEN s.now + greatest(f.due_at - f.failed_at, interval '0')
                WHEN f.token IS NOT NULL AND s.leased_at > s.now
                THEN least(f.due_at, s.now + CASE WHEN f.due_at > s.leased_at THEN f.due_at - s.leased_at ELSE s.lease_time END)
                ELSE f.due_at END AS due_at
    FROM s JOIN fairlane.failures f ON f.partition_id = s.partition_id AND f.group_id = s.group_id
    WHERE f.failed_at > s.now OR f.token IS NOT NULL AND s.leased_at > s.now),
shortened AS (
    UPDATE fairlane.claims m SET ends_at = h.ends_at FROM held h
    WHERE m.partition_id = h.partition_id AND m.group_id = h.group_id AND m.first_pos = h.first_pos),
due AS (
    UPDATE fairlane.failures f
    SET due_at = x.due_at, failed_at = least(f.failed_at, x.now), first_failed_at = least(f.first_failed_at, x.now) FROM failed x
    WHERE f.partition_id = x.partition_id AND f.group_id = x.group_id AND f.position = x.position)
UPDATE fairlane.cursors k
SET ready_at = s.ready_at, leased_at = CASE WHEN k.leased_at > s.now THEN s.now ELSE k.leased_at END
FROM s WHERE k.partition_id = s.partition_id AND k.group_id = s.group_id

-- name: repair_wakes (sqlite)
-- Each:
update claims
set ends_at = min(claims.ends_at, :now + iif(claims.ends_at > c.leased_at, claims.ends_at - c.leased_at, q.options ->> '$.lease_seconds' * 1000000))
from cursors c join partitions p on p.id = c.partition_id join queues q on q.id = p.queue_id
where c.partition_id = :ids and c.group_id = :groups and c.leased_at > :now
    and claims.partition_id = c.partition_id and claims.group_id = c.group_id;
update failures
set due_at = case
        when failures.token is null and failures.failed_at > :now then :now + max(failures.due_at - failures.failed_at, 0)
        when failures.token is not null and c.leased_at > :now
            then min(failures.due_at, :now + iif(failures.due_at > c.leased_at, failures.due_at - c.leased_at, q.options ->> '$.lease_seconds' * 1000000))
        else failures.due_at
    end,
    failed_at = min(failures.failed_at, :now), first_failed_at = min(failures.first_failed_at, :now)
from cursors c join partitions p on p.id = c.partition_id join queues q on q.id = p.queue_id
where c.partition_id = :ids and c.group_id = :groups
    and failures.partition_id = c.partition_id and failures.group_id = c.group_id
    and (failures.failed_at > :now or failures.token is not null and c.leased_at > :now);
update cursors
set ready_at = case
        when leased_at <= :now or leased_at is null then :now
        when ready_at < :never then min(ready_at, :now + max(ready_at - leased_at, 0))
        else ready_at
    end,
    leased_at = min(leased_at, :now)
where partition_id = :ids and group_id = :groups
    and (ready_at is null or ready_at = :never or leased_at > :now or lease is null and ready_at > :now)
