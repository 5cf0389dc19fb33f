-- name: due
SELECT EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.ruled) OR EXISTS (SELECT 1 FROM fairlane.retention_rules)
    OR EXISTS (SELECT 1 FROM fairlane.expiries) OR EXISTS (SELECT 1 FROM fairlane.deleted_ids) OR EXISTS (SELECT 1 FROM fairlane.retention_minutes);

-- name: fence
SELECT 1 FROM fairlane.leadership l WHERE l.name = 'retention' AND l.token = $1 AND l.leads_until > coalesce($2, clock_timestamp())
FOR SHARE;

-- name: rules_gone
DELETE FROM fairlane.retention_rules r
WHERE NOT EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.id = r.queue_id AND q.retained);

-- name: rules_changed
INSERT INTO fairlane.retention_rules AS r (queue_id, rules, seed_shard, seed_after)
SELECT q.id, concat_ws('/', q.options ->> 'retention_seconds', q.options ->> 'completed_retention_seconds'), $1, ''
FROM fairlane.queues q WHERE q.ruled AND q.retained
ON CONFLICT (queue_id) DO UPDATE SET rules = excluded.rules, seed_shard = excluded.seed_shard, seed_after = ''
WHERE r.rules <> excluded.rules;

-- name: letters_ruled
SELECT q.id, (q.options ->> 'dead_letter_retention_seconds')::bigint FROM fairlane.queues q
WHERE q.ruled AND (q.options ->> 'dead_letter_retention_seconds')::bigint > 0;

-- name: forget_minutes
DELETE FROM fairlane.retention_minutes h WHERE h.shard = $1 AND h.at < coalesce($2, clock_timestamp()) - make_interval(secs => $3);

-- name: forget_hours
DELETE FROM fairlane.retention_hours h WHERE h.shard = $1 AND h.at < coalesce($2, clock_timestamp()) - make_interval(secs => $3);

-- name: next_cover
SELECT r.queue_id, r.seed_shard, r.seed_after FROM fairlane.retention_rules r WHERE r.seed_shard IS NOT NULL
ORDER BY r.queue_id LIMIT 1;

-- name: cover
SELECT fairlane.cover($1, $2, $3, $4, $5);

-- name: covered
UPDATE fairlane.retention_rules r SET seed_shard = $2, seed_after = $3 WHERE r.queue_id = $1;

-- name: expire (steps)
SELECT e.queue_id, e.rule, e.messages, e.unread FROM fairlane.retain($1, $2, $3) e;

-- name: expire_letters
-- But none that still waits to be forwarded; and one that somebody changes is looked at another time: it may be given up again.
WITH gone AS (
    DELETE FROM fairlane.dead_letters d
    USING (SELECT x.partition_id, x.group_id, x.position FROM fairlane.dead_letters x
           WHERE x.shard = $1 AND x.queue_id = $2 AND x.failed_at <= coalesce($5, clock_timestamp()) - make_interval(secs => $3)
             AND x.forward_at IS NULL
           ORDER BY x.failed_at LIMIT $4 FOR UPDATE SKIP LOCKED) o
    WHERE d.shard = $1 AND d.partition_id = o.partition_id AND d.group_id = o.group_id AND d.position = o.position
    RETURNING d.partition_id, d.replayed_at)
SELECT coalesce(p.name, '')::text, count(*), count(*) FILTER (WHERE g.replayed_at IS NULL)
FROM gone g LEFT JOIN fairlane.partitions p ON p.shard = $1 AND p.id = g.partition_id GROUP BY p.name;

-- name: record
SELECT fairlane.record_expiry($1, $2, $3, $4, $5, $6, coalesce($7, clock_timestamp()));

-- name: history
SELECT h.queue_id, h.rule, h.at, sum(h.messages)::bigint, sum(h.unread)::bigint FROM fairlane.retention_minutes h
WHERE h.shard = ANY ($1) AND h.queue_id = ANY ($2) AND h.at >= $3 AND h.at <= $4
GROUP BY h.queue_id, h.rule, h.at ORDER BY h.at, h.queue_id, h.rule;
