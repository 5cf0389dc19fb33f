-- name: active
SELECT p.id, p.queue_id, p.name::text, p.last_at FROM fairlane.partitions p
WHERE p.queue_id = ANY (:queue_ids) AND p.head > p.start AND p.last_at >= :since
  AND (:name::text IS NULL OR p.name = :name)
  AND (:before_at::timestamptz IS NULL OR (p.last_at, p.id) < (:before_at, :before_id::bigint))
ORDER BY p.last_at DESC, p.id DESC LIMIT :limit

-- name: named_like
-- The names have byte order, so the names with a prefix are a range of the index.
SELECT p.id, p.queue_id, p.name::text, p.last_at FROM fairlane.partitions p
WHERE p.queue_id = ANY (:queue_ids) AND p.name >= :prefix::text AND p.name < :upto::text
ORDER BY p.name, p.id LIMIT :limit

-- name: newest (postgres, steps)
SELECT b.item, b.pos, b.at, b.head FROM fairlane.newest_messages(:ids, :until, :below, :since, :limit, :bytes) b

-- name: delete (postgres, steps)
SELECT fairlane.delete_message(:partition_id, :position, :transaction_id, :now)

-- name: dead_letter (postgres, steps)
SELECT fairlane.dead_letter_message(:partition_id, :group_id, :position, :error, :now)

-- name: lock_scheduled (postgres, lock)
-- An append of due messages locks scheduled segments before queues and partitions. :partition_id 0 means all partitions.
SELECT count(*) FROM (
    SELECT 1 FROM fairlane.scheduled_segments b
    WHERE b.partition_id = ANY (ARRAY(
        SELECT p.id FROM fairlane.partitions p
        WHERE p.queue_id = :queue_id AND :partition_id::bigint IN (0, p.id)))
    ORDER BY b.id FOR UPDATE) x

-- name: clear (postgres)
SELECT fairlane.clear(:queue_id, :partition_id)

-- part: those (sqlite)
(select p.id from partitions p where p.queue_id = :queue_id and :partition_id in (0, p.id))

-- name: clear (sqlite)
-- :partition_id 0 means all partitions. Answers with the number of messages.
select coalesce(sum(p.head - p.start
    - (select count(*) from skips s where s.partition_id = p.id and s.group_id = 0 and s.position >= p.start)), 0)
from partitions p
where p.id in {those};
update cursors
set committed = (select p.head from partitions p where p.id = cursors.partition_id), claimed = 0, ready_at = null, lease = null,
    lease_start = null, lease_end = null, leased_at = null, last_lease = null, probe_until = 0, failing = 0
where partition_id in {those};
delete from failures where partition_id in {those};
delete from claims where partition_id in {those};
delete from skips where partition_id in {those};
delete from scheduled_messages where id in (select b.id from scheduled_segments b where b.partition_id in {those});
delete from scheduled_keys where partition_id in {those};
delete from scheduled_segments where partition_id in {those};
insert into trims (partition_id, cleared)
select p.id, p.head from partitions p
where p.id in {those} and (p.start < p.head or exists (select 1 from deleted_ids d where d.partition_id = p.id))
on conflict do update set cleared = excluded.cleared;
update partitions set start = head where id in {those};
-- Idle partitions expire later.
insert or ignore into expiries (partition_id, due_at)
select id, max(last_at, created_at) + 30 * 86400 * 1000000 from partitions where id in {those}

-- name: traced
SELECT t.partition_id, t.position, p.queue_id, p.name::text FROM fairlane.traced t CROSS JOIN fairlane.partitions p
WHERE t.trace_id = :trace_id::text::uuid AND p.id = t.partition_id AND t.position >= p.start
  AND p.queue_id = ANY (:queue_ids)
LIMIT :limit

-- name: with_id (postgres, steps)
-- Finds candidates by the remembered ids and by the time inside a UUIDv7.
SELECT p.id, k.position, p.queue_id, p.name::text FROM fairlane.partitions p
CROSS JOIN LATERAL (SELECT m.position FROM fairlane.message_keys m
                    WHERE m.partition_id = p.id AND m.key = ANY (:keys)
                      AND m.transaction_id = :transaction_id) k
WHERE p.queue_id = ANY (:queue_ids) AND k.position >= p.start
  AND (:partition_ids::bigint[] IS NULL OR p.id = ANY (:partition_ids))
UNION ALL
SELECT p.id, s.first_pos + u.ord - 1, p.queue_id, p.name::text FROM fairlane.partitions p
CROSS JOIN LATERAL (SELECT x.first_pos, x.keys FROM fairlane.segments x
                    WHERE x.partition_id = p.id AND x.keys && :keys
                      AND x.first_pos >= fairlane.position_at(p.id, :since)
                      AND x.first_pos < fairlane.position_at(p.id, :until)) s
CROSS JOIN LATERAL unnest(s.keys) WITH ORDINALITY u(key, ord)
WHERE p.queue_id = ANY (:queue_ids) AND p.last_at >= :since AND p.created_at <= :until
  AND u.key = ANY (:keys) AND s.first_pos + u.ord > p.start
  AND (:partition_ids IS NULL OR p.id = ANY (:partition_ids))

-- name: trim (postgres, steps)
SELECT fairlane.trim(:limit, :now)

-- name: forget_ids (postgres, steps)
SELECT fairlane.forget_ids(:limit, :now)
