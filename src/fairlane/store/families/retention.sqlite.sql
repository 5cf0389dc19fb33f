-- name: due
select exists (select 1 from queues where options ->> '$.retention_enabled' or options ->> '$.dead_letter_retention_seconds' > 0)
    or exists (select 1 from retention_rules)
    or exists (select 1 from expiries)
    or exists (select 1 from deleted_ids)
    or exists (select 1 from retention_minutes)

-- name: fence
select 1 from leadership where name = 'retention' and token = :token and leads_until > :now

-- name: rules_gone
delete from retention_rules
where not exists (select 1 from queues q where q.id = queue_id and q.options ->> '$.retention_enabled')

-- name: rules_changed
insert into retention_rules (queue_id, rules, seed_from)
select id, (options ->> '$.retention_seconds') || '/' || (options ->> '$.completed_retention_seconds'), 0
from queues
where options ->> '$.retention_enabled'
on conflict (queue_id) do update set rules = excluded.rules, seed_from = 0
where rules <> excluded.rules

-- name: letters_ruled
select id, options ->> '$.dead_letter_retention_seconds'
from queues
where options ->> '$.dead_letter_retention_seconds' > 0

-- name: forget_minutes
delete from retention_minutes where at < :now - :seconds * 1000000

-- name: forget_hours
delete from retention_hours where at < :now - :seconds * 1000000

-- name: next_cover
select queue_id, 0, seed_from from retention_rules where seed_from is not null order by queue_id limit 1

-- part: next
select id, :now as due_at from partitions where queue_id = :queue_id and id > :after order by id limit :limit

-- name: cover
-- Answers with the last of them.
insert or replace into expiries (partition_id, due_at) {next};
select max(id) from ({next})

-- name: covered
update retention_rules set seed_from = iif(:shard is null, null, :after) where queue_id = :queue_id

-- name: expire_letters
-- But none that still waits to be forwarded.
delete from dead_letters
where rowid in (
    select rowid from dead_letters
    where queue_id = :queue_id and failed_at <= :now - :seconds * 1000000 and forward_at is null
    order by failed_at limit :limit
)
returning (select ifnull(max(p.name), '') from partitions p where p.id = partition_id), replayed_at

-- name: record
insert into retention_minutes (queue_id, at, rule, messages, unread)
values (:queue_id, :now / 60000000 * 60000000, :rule, :messages, :unread)
on conflict (queue_id, at, rule) do update set messages = messages + excluded.messages, unread = unread + excluded.unread;
insert into retention_hours (queue_id, partition_name, at, rule, messages, unread)
values (:queue_id, :partition, :now / 3600000000 * 3600000000, :rule, :messages, :unread)
on conflict (queue_id, partition_name, at, rule) do update
set messages = messages + excluded.messages, unread = unread + excluded.unread

-- name: history
select queue_id, rule, at, messages, unread
from retention_minutes
where queue_id in (select value from json_each(:queue_ids)) and at >= :since and at <= :until
order by at, queue_id, rule
