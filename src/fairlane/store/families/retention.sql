-- name: due (postgres)
SELECT EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.ruled) OR EXISTS (SELECT 1 FROM fairlane.retention_rules)
    OR EXISTS (SELECT 1 FROM fairlane.expiries) OR EXISTS (SELECT 1 FROM fairlane.deleted_ids) OR EXISTS (SELECT 1 FROM fairlane.retention_minutes)

-- name: due (sqlite)
select exists (select 1 from queues where options ->> '$.retention_enabled' or options ->> '$.dead_letter_retention_seconds' > 0)
    or exists (select 1 from retention_rules)
    or exists (select 1 from expiries)
    or exists (select 1 from deleted_ids)
    or exists (select 1 from retention_minutes)

-- name: fence
SELECT 1 FROM fairlane.leadership l WHERE l.name = 'retention' AND l.token = :token AND l.leads_until > coalesce(:now, clock_timestamp())
FOR SHARE

-- name: rules_gone (postgres)
DELETE FROM fairlane.retention_rules r
WHERE NOT EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.id = r.queue_id AND q.retained)

-- name: rules_gone (sqlite)
delete from retention_rules
where not exists (select 1 from queues q where q.id = queue_id and q.options ->> '$.retention_enabled')

-- name: rules_changed (postgres)
INSERT INTO fairlane.retention_rules AS r (queue_id, rules, seed_after)
SELECT q.id, (q.options ->> 'retention_seconds') || '/' || (q.options ->> 'completed_retention_seconds'), ''
FROM fairlane.queues q WHERE q.ruled AND q.retained
ON CONFLICT (queue_id) DO UPDATE SET rules = excluded.rules, seed_after = ''
WHERE r.rules <> excluded.rules

-- name: rules_changed (sqlite)
insert into retention_rules (queue_id, rules, seed_after)
select id, (options ->> '$.retention_seconds') || '/' || (options ->> '$.completed_retention_seconds'), 0
from queues
where options ->> '$.retention_enabled'
on conflict (queue_id) do update set rules = excluded.rules, seed_after = 0
where rules <> excluded.rules

-- name: letters_ruled (postgres)
SELECT q.id, (q.options ->> 'dead_letter_retention_seconds')::bigint FROM fairlane.queues q
WHERE q.ruled AND (q.options ->> 'dead_letter_retention_seconds')::bigint > 0

-- name: letters_ruled (sqlite)
select id, options ->> '$.dead_letter_retention_seconds'
from queues
where options ->> '$.dead_letter_retention_seconds' > 0

-- name: forget_minutes
DELETE FROM fairlane.retention_minutes AS h WHERE h.at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)

-- name: forget_hours
DELETE FROM fairlane.retention_hours AS h WHERE h.at < coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)

-- name: next_cover
SELECT r.queue_id, r.seed_after FROM fairlane.retention_rules r WHERE r.seed_after IS NOT NULL
ORDER BY r.queue_id LIMIT 1

-- name: cover (postgres)
SELECT fairlane.schedule_retention(:queue_id, :after, :limit, :now)

-- part: next (sqlite)
select id, :now as due_at from partitions where queue_id = :queue_id and id > :after order by id limit :limit

-- name: cover (sqlite)
-- Answers with the last partition.
insert or replace into expiries (partition_id, due_at) {next};
select max(id) from ({next})

-- name: covered
UPDATE fairlane.retention_rules AS r SET seed_after = :after WHERE r.queue_id = :queue_id

-- name: expire (postgres, steps)
SELECT e.queue_id, e.rule, e.messages, e.unread, e.checked FROM fairlane.expire_messages(:limit, :now) e

-- name: expire_letters (postgres)
-- Skips letters that wait to be forwarded. Also skips locked ones for now, because they may be about to fail again.
WITH gone AS (
    DELETE FROM fairlane.dead_letters d
    USING (SELECT x.partition_id, x.group_id, x.position FROM fairlane.dead_letters x
           WHERE x.queue_id = :queue_id AND x.failed_at <= coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
             AND x.forward_at IS NULL
           ORDER BY x.failed_at LIMIT :limit FOR UPDATE SKIP LOCKED) o
    WHERE d.partition_id = o.partition_id AND d.group_id = o.group_id AND d.position = o.position
    RETURNING d.partition_id, d.replayed_at)
SELECT coalesce(p.name, '')::text, g.replayed_at
FROM gone g LEFT JOIN fairlane.partitions p ON p.id = g.partition_id

-- name: expire_letters (sqlite)
-- Skips letters that wait to be forwarded.
delete from dead_letters
where rowid in (
    select rowid from dead_letters
    where queue_id = :queue_id and failed_at <= :now - :seconds * 1000000 and forward_at is null
    order by failed_at limit :limit
)
returning (select ifnull(max(p.name), '') from partitions p where p.id = partition_id), replayed_at

-- name: record (postgres)
SELECT fairlane.record_expiry(:queue_id, :partition, :rule, :messages, :unread, coalesce(:now, clock_timestamp()))

-- name: record (sqlite)
insert into retention_minutes (queue_id, at, rule, messages, unread)
values (:queue_id, :now / 60000000 * 60000000, :rule, :messages, :unread)
on conflict (queue_id, at, rule) do update set messages = messages + excluded.messages, unread = unread + excluded.unread;
insert into retention_hours (queue_id, partition_name, at, rule, messages, unread)
values (:queue_id, :partition, :now / 3600000000 * 3600000000, :rule, :messages, :unread)
on conflict (queue_id, partition_name, at, rule) do update
set messages = messages + excluded.messages, unread = unread + excluded.unread

-- name: history
SELECT h.queue_id, h.rule, h.at, sum(h.messages)::bigint, sum(h.unread)::bigint FROM fairlane.retention_minutes h
WHERE h.queue_id = ANY (:queue_ids) AND h.at >= :since AND h.at <= :until
GROUP BY h.queue_id, h.rule, h.at ORDER BY h.at, h.queue_id, h.rule
