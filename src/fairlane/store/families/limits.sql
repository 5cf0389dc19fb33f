-- name: state (postgres, steps)
SELECT a.allowed, a.until, a.limited_by, a.running, a.started
FROM fairlane.groups g JOIN fairlane.queues q ON q.id = g.queue_id
CROSS JOIN LATERAL fairlane.allowance(g.id, :key, q.options, coalesce(:now, clock_timestamp())) a
WHERE g.id = :group_id

-- name: wake_lanes (postgres)
UPDATE fairlane.cursors k SET ready_at = coalesce(:now, clock_timestamp())
FROM fairlane.partitions p, fairlane.starts s
WHERE p.queue_id = :queue_id AND k.partition_id = p.id AND k.lease IS NULL AND s.group_id = k.group_id
    AND s.key = CASE WHEN :unordered THEN regexp_replace(p.name, '![1-9]$', '') ELSE p.name END
    AND k.ready_at - s.at = make_interval(secs => :seconds)

-- name: wake_retries (postgres)
UPDATE fairlane.failures f SET due_at = coalesce(:now, clock_timestamp())
FROM fairlane.partitions p, fairlane.starts s
WHERE p.queue_id = :queue_id AND f.partition_id = p.id AND f.token IS NULL AND s.group_id = f.group_id
    AND s.key = CASE WHEN :unordered THEN regexp_replace(p.name, '![1-9]$', '') ELSE p.name END
    AND f.due_at - s.at = make_interval(secs => :seconds)

-- part: key (sqlite)
iif(:unordered and p.name glob '*![1-9]', substr(p.name, 1, length(p.name) - 2), p.name)

-- name: wake_lanes (sqlite)
update cursors set ready_at = :now
from partitions p, starts s
where p.queue_id = :queue_id and cursors.partition_id = p.id and lease is null and s.group_id = cursors.group_id
    and s.key = {key} and ready_at = s.at + :seconds * 1000000

-- name: wake_retries (sqlite)
update failures set due_at = :now
from partitions p, starts s
where p.queue_id = :queue_id and failures.partition_id = p.id and token is null and s.group_id = failures.group_id
    and s.key = {key} and due_at = s.at + :seconds * 1000000
