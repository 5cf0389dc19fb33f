-- name: due
SELECT EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.ruled) OR EXISTS (SELECT 1 FROM fairlane.retention_rules)
    OR EXISTS (SELECT 1 FROM fairlane.expiries) OR EXISTS (SELECT 1 FROM fairlane.deleted_ids) OR EXISTS (SELECT 1 FROM fairlane.retention_minutes);

-- name: fence
SELECT 1 FROM fairlane.leadership l WHERE l.name = 'retention' AND l.token = :token AND l.leads_until > coalesce(:now, clock_timestamp())
FOR SHARE;

-- name: rules_gone
DELETE FROM fairlane.retention_rules r
WHERE NOT EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.id = r.queue_id AND q.retained);

-- name: rules_changed
INSERT INTO fairlane.retention_rules AS r (queue_id, rules, seed_shard, seed_after)
SELECT q.id, concat_ws('/', q.options ->> 'retention_seconds', q.options ->> 'completed_retention_seconds'), :shard, ''
FROM fairlane.queues q WHERE q.ruled AND q.retained
ON CONFLICT (queue_id) DO UPDATE SET rules = excluded.rules, seed_shard = excluded.seed_shard, seed_after = ''
WHERE r.rules <> excluded.rules;

-- name: letters_ruled
SELECT q.id, (q.options ->> 'dead_letter_retention_seconds')::bigint FROM fairlane.queues q
WHERE q.ruled AND (q.options ->> 'dead_letter_retention_seconds')::bigint > 0;

-- name: forget_minutes
DELETE FROM fairlane.retention_minutes h WHERE h.shard = :shard AND h.at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds);

-- name: forget_hours
DELETE FROM fairlane.retention_hours h WHERE h.shard = :shard AND h.at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds);

-- name: next_cover
SELECT r.queue_id, r.seed_shard, r.seed_after FROM fairlane.retention_rules r WHERE r.seed_shard IS NOT NULL
ORDER BY r.queue_id LIMIT 1;

-- name: cover
SELECT fairlane.cover(:shard, :queue_id, :after, :limit, :now);

-- name: covered
UPDATE fairlane.retention_rules r SET seed_shard = :shard, seed_after = :after WHERE r.queue_id = :queue_id;

-- name: expire (steps)
SELECT e.queue_id, e.rule, e.messages, e.unread FROM fairlane.retain(:shard, :limit, :now) e;

-- name: expire_letters
-- But none that still waits to be forwarded; and one that somebody changes is looked at another time: it may be given up again.
WITH gone AS (
    DELETE FROM fairlane.dead_letters d
    USING (SELECT x.partition_id, x.group_id, x.position FROM fairlane.dead_letters x
           WHERE x.shard = :shard AND x.queue_id = :queue_id AND x.failed_at <= coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
             AND x.forward_at IS NULL
           ORDER BY x.failed_at LIMIT :limit FOR UPDATE SKIP LOCKED) o
    WHERE d.shard = :shard AND d.partition_id = o.partition_id AND d.group_id = o.group_id AND d.position = o.position
    RETURNING d.partition_id, d.replayed_at)
SELECT coalesce(p.name, '')::text, g.replayed_at
FROM gone g LEFT JOIN fairlane.partitions p ON p.shard = :shard AND p.id = g.partition_id;

-- name: record
SELECT fairlane.record_expiry(:shard, :queue_id, :partition, :rule, :messages, :unread, coalesce(:now, clock_timestamp()));

-- name: history
SELECT h.queue_id, h.rule, h.at, sum(h.messages)::bigint, sum(h.unread)::bigint FROM fairlane.retention_minutes h
WHERE h.shard = ANY (:shards) AND h.queue_id = ANY (:queue_ids) AND h.at >= :since AND h.at <= :until
GROUP BY h.queue_id, h.rule, h.at ORDER BY h.at, h.queue_id, h.rule;
