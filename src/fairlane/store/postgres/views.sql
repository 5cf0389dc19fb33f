-- Views for people, the same on both stores. They are recreated when this text changes. They count rows, so on a large store
-- select a queue: WHERE queue = 'orders'.
DROP VIEW IF EXISTS fairlane.messages, fairlane.queue_depths, fairlane.active_leases, fairlane.partition_utilisation,
                    fairlane.stuck_lanes, fairlane.retention_history, fairlane.lanes;

-- Every stored message. Messages of encrypted queues have no data here.
CREATE VIEW fairlane.messages AS
SELECT t.name AS tenant, q.name AS queue, p.name AS partition, s.first_pos + e.ord - 1 AS position,
       m.doc ->> 'id' AS id, m.doc ->> 'transactionId' AS transaction_id, m.doc ->> 'traceId' AS trace_id,
       m.doc ->> 'type' AS type, m.doc -> 'headers' AS headers, s.created_at, m.doc -> 'data' AS data
FROM fairlane.segments s
JOIN fairlane.partitions p ON p.id = s.partition_id
JOIN fairlane.queues q ON q.id = p.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id
CROSS JOIN LATERAL unnest(s.ends) WITH ORDINALITY AS e(upto, ord)
CROSS JOIN LATERAL (
    SELECT convert_from(substring(s.body FROM coalesce(s.ends[e.ord::int - 1], 0) + 1
                                  FOR e.upto - coalesce(s.ends[e.ord::int - 1], 0)), 'UTF8') || '}' AS text OFFSET 0
) f
CROSS JOIN LATERAL (
    -- PostgreSQL texts cannot hold a NUL, so it is replaced. A backslash before it may itself be escaped.
    SELECT CASE WHEN strpos(f.text, '\u0000') = 0 THEN f.text
                ELSE regexp_replace(f.text, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g') END::json AS doc
) m
WHERE s.first_pos + e.ord > p.start
  AND NOT EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.partition_id = s.partition_id
                  AND x.position = s.first_pos + e.ord - 1 AND x.group_id = 0);

-- Every partition as each group sees it. `lag`: unfinished messages of the group. `leased`: those that consumers hold now.
-- `position`: everything below is finished. `oldest_at`: push time of the message there.
CREATE VIEW fairlane.lanes AS
SELECT t.name AS tenant, q.name AS queue, g.name AS "group", p.name AS partition,
       p.head - greatest(k.committed, k.claimed) - s.finished + u.open AS lag,
       CASE WHEN k.lease IS NOT NULL AND k.ready_at > clock_timestamp() THEN k.lease_end - k.committed ELSE 0 END + u.leased AS leased,
       k.committed AS position, o.created_at AS oldest_at, k.dead AS dead_letters, k.expired,
       CASE WHEN coalesce(q.paused_at, g.paused_at, p.paused_at) IS NOT NULL THEN 'paused' WHEN k.parked THEN 'parked'
            WHEN k.ready_at = fairlane.never() THEN 'blocked' END AS stopped,
       coalesce(q.paused_at, g.paused_at, p.paused_at) AS paused_at, k.ready_at,
       q.id AS queue_id, k.partition_id, k.group_id
FROM fairlane.cursors k
JOIN fairlane.partitions p ON p.id = k.partition_id
JOIN fairlane.groups g ON g.id = k.group_id
JOIN fairlane.queues q ON q.id = p.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id
CROSS JOIN LATERAL (
    SELECT count(*) AS finished FROM fairlane.skips x WHERE x.partition_id = k.partition_id
    AND x.position >= greatest(k.committed, k.claimed) AND x.group_id IN (0, k.group_id)) s
CROSS JOIN LATERAL (
    SELECT coalesce(sum(x.n), 0)::bigint AS open,
           coalesce(sum(x.n) FILTER (WHERE x.held AND x.ends_at > clock_timestamp()), 0)::bigint AS leased
    FROM (
        SELECT c.upto - c.first_pos AS n, c.ends_at, true AS held FROM fairlane.claims c
        WHERE c.partition_id = k.partition_id AND c.group_id = k.group_id
        UNION ALL
        SELECT 1, f.due_at, f.token IS NOT NULL FROM fairlane.failures f
        WHERE f.partition_id = k.partition_id AND f.group_id = k.group_id AND f.due_at IS NOT NULL) x) u
LEFT JOIN LATERAL (
    SELECT x.created_at FROM fairlane.segments x
    WHERE x.partition_id = k.partition_id AND x.first_pos <= k.committed AND k.committed < p.head
    ORDER BY x.first_pos DESC LIMIT 1) o ON true;

-- The lag of every group of a queue. `messages`: retained ones. Without a group all of them are the lag. `max_size` and
-- `remaining_capacity` describe the queue. Both are NULL if the queue has no limit.
CREATE VIEW fairlane.queue_depths AS
SELECT t.name AS tenant, q.name AS queue, g.name AS "group", m.partitions, m.messages,
       CASE WHEN g.id IS NULL THEN m.messages ELSE coalesce(l.lag, 0) END AS lag, coalesce(l.lagging, 0) AS lagging_partitions,
       coalesce(l.leased, 0) AS leased, l.oldest_at, d.n AS dead_letters,
       c.max_size, CASE WHEN c.max_size IS NOT NULL THEN greatest(0, c.max_size - q.depth) END AS remaining_capacity
FROM fairlane.queues q
CROSS JOIN LATERAL (SELECT nullif((q.options ->> 'max_size')::bigint, 0) AS max_size) c
JOIN fairlane.tenants t ON t.id = q.tenant_id
LEFT JOIN fairlane.groups g ON g.queue_id = q.id
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions, coalesce(sum(p.head - p.start - h.holes), 0)::bigint AS messages FROM fairlane.partitions p
    CROSS JOIN LATERAL (SELECT count(*) AS holes FROM fairlane.skips x WHERE x.partition_id = p.id
                        AND x.position >= p.start AND x.group_id = 0) h
    WHERE p.queue_id = q.id) m
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM fairlane.dead_letters x WHERE x.queue_id = q.id AND x.group_id = g.id AND x.replayed_at IS NULL) d
LEFT JOIN (
    SELECT x.group_id, sum(x.lag)::bigint AS lag, count(*) FILTER (WHERE x.lag > 0) AS lagging, sum(x.leased)::bigint AS leased,
           min(x.oldest_at) AS oldest_at
    FROM fairlane.lanes x GROUP BY x.group_id) l ON l.group_id = g.id;

-- Every live lease, by lane. `position`: its first unfinished message. A lane of an unordered queue has many leases, of which
-- only the end is stored: `leased_at` and `seconds_held` are NULL.
CREATE VIEW fairlane.active_leases AS
SELECT t.name AS tenant, q.name AS queue, g.name AS "group", p.name AS partition, x.lease, x.position, x.messages, x.leased_at,
       x.expires_at,
       CASE WHEN x.leased_at IS NOT NULL
            THEN greatest(0, extract(epoch FROM clock_timestamp() - x.leased_at))::double precision END AS seconds_held,
       greatest(0, extract(epoch FROM x.expires_at - clock_timestamp()))::double precision AS seconds_remaining
FROM (
    SELECT k.partition_id, k.group_id, k.lease, k.committed AS position, k.lease_end - k.committed AS messages, k.leased_at,
           k.ready_at AS expires_at
    FROM fairlane.cursors k WHERE k.lease IS NOT NULL AND k.ready_at > clock_timestamp()
    UNION ALL
    SELECT u.partition_id, u.group_id, u.token, min(u.first_pos), sum(u.n)::bigint, NULL, min(u.ends_at)
    FROM (
        SELECT c.partition_id, c.group_id, c.token, c.first_pos, c.upto - c.first_pos AS n, c.ends_at FROM fairlane.claims c
        UNION ALL
        SELECT f.partition_id, f.group_id, f.token, f.position, 1, f.due_at FROM fairlane.failures f
        WHERE f.token IS NOT NULL) u
    WHERE u.ends_at > clock_timestamp()
    GROUP BY u.partition_id, u.group_id, u.token) x
JOIN fairlane.partitions p ON p.id = x.partition_id
JOIN fairlane.groups g ON g.id = x.group_id
JOIN fairlane.queues q ON q.id = p.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id;

-- The contents of every partition. `share`: its share of the messages of the queue, from 0 to 1. `bytes`: size of stored
-- messages, including deleted ones that are not removed yet. `lag`: lag of the group that is furthest behind. `leases`: groups
-- whose consumers read it now.
CREATE VIEW fairlane.partition_utilisation AS
SELECT t.name AS tenant, q.name AS queue, p.name AS partition, m.messages,
       coalesce(m.messages / nullif(sum(m.messages) OVER (PARTITION BY q.id), 0), 0)::double precision AS share, b.bytes,
       coalesce(l.lag, m.messages) AS lag, coalesce(l.leases, 0) AS leases, p.created_at,
       CASE WHEN p.head > 0 THEN p.last_at END AS last_push_at
FROM fairlane.partitions p
JOIN fairlane.queues q ON q.id = p.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id
CROSS JOIN LATERAL (
    SELECT p.head - p.start - count(*) AS messages FROM fairlane.skips x WHERE x.partition_id = p.id
    AND x.position >= p.start AND x.group_id = 0) m
CROSS JOIN LATERAL (
    SELECT coalesce(sum(octet_length(s.body)), 0)::bigint AS bytes FROM fairlane.segments s
    WHERE s.partition_id = p.id) b
LEFT JOIN (
    SELECT x.partition_id, max(x.lag) AS lag, count(*) FILTER (WHERE x.leased > 0) AS leases
    FROM fairlane.lanes x GROUP BY x.partition_id) l ON l.partition_id = p.id;

-- Lanes with messages that do not advance, with the reason: paused; parked or blocked until resumed; a message that is retried;
-- an expired lease; or unread, if it was ready for a minute and not popped.
CREATE VIEW fairlane.stuck_lanes AS
SELECT x.tenant, x.queue, x."group", x.partition, x.reason,
       CASE x.reason WHEN 'paused' THEN x.paused_at WHEN 'lease expired' THEN x.ready_at
                     WHEN 'unread' THEN x.oldest_at ELSE coalesce(x.first_failed_at, x.oldest_at) END AS since,
       x.lag, x.position, x.attempts, x.error
FROM (
    SELECT l.*, f.attempts, f.error, f.first_failed_at,
           CASE WHEN l.stopped IS NOT NULL THEN l.stopped
                WHEN k.lease IS NOT NULL AND k.ready_at <= clock_timestamp() THEN 'lease expired'
                WHEN f.attempts > 0 AND k.claimed = 0 THEN 'retrying'
                WHEN k.ready_at < clock_timestamp() - interval '1 minute' AND l.oldest_at < clock_timestamp() - interval '1 minute'
                THEN 'unread'
           END AS reason
    FROM fairlane.lanes l
    JOIN fairlane.cursors k ON k.partition_id = l.partition_id AND k.group_id = l.group_id
    LEFT JOIN fairlane.failures f ON f.partition_id = l.partition_id AND f.group_id = l.group_id
                                 AND f.position = l.position
    WHERE l.lag > 0) x
WHERE x.reason IS NOT NULL;

-- Deletions by retention, by partition, hour and rule. `unread`: messages that some group had not finished. Deleted partitions
-- still have their names here.
CREATE VIEW fairlane.retention_history AS
SELECT t.name AS tenant, q.name AS queue, h.partition_name AS partition, h.at, h.rule, h.messages, h.unread
FROM fairlane.retention_hours h
JOIN fairlane.queues q ON q.id = h.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id;
