-- name: state (postgres, steps)
SELECT a.allowed, a.until, a.limited_by, a.running, a.started
FROM fairlane.groups g JOIN fairlane.queues q ON q.id = g.queue_id
CROSS JOIN LATERAL fairlane.allowance(g.id, q.options, coalesce(:now, clock_timestamp())) a
WHERE g.id = :group_id
