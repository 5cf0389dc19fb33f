-- name: cancel (postgres, steps)
SELECT c.group_id, c.state, c.token FROM fairlane.cancel_message(:partition_id, :group_id, :position, :now) c

-- name: at
SELECT c.group_id FROM fairlane.cancellations c WHERE c.partition_id = :partition_id AND c.position = :position

-- name: among (postgres)
SELECT c.partition_id, c.position, coalesce(g.name, '') FROM fairlane.cancellations c
JOIN unnest(:ids::bigint[], :positions::bigint[]) u(partition_id, position)
  ON u.partition_id = c.partition_id AND u.position = c.position
LEFT JOIN fairlane.groups g ON g.id = c.group_id

-- name: among (sqlite)
-- Each:
select c.partition_id, c.position, coalesce(g.name, '')
from cancellations c left join groups g on g.id = c.group_id
where c.partition_id = :ids and c.position = :positions

-- name: of_leases (postgres)
SELECT c.group_id, c.token, c.partition_id, c.position FROM fairlane.cancellations c
JOIN unnest(:groups::bigint[], :tokens::uuid[]) u(group_id, token) ON u.group_id = c.group_id AND u.token = c.token
ORDER BY 3, 4

-- name: of_leases (sqlite)
-- Each:
select c.group_id, c.token, c.partition_id, c.position from cancellations c
where c.group_id = :groups and c.token = :tokens

-- name: keep_id
INSERT INTO fairlane.cancelled_ids (partition_id, transaction_id, kept_until)
VALUES (:partition_id, :transaction_id, coalesce(:now, clock_timestamp()) + make_interval(secs => :seconds))
ON CONFLICT (partition_id, transaction_id) DO UPDATE SET kept_until = excluded.kept_until

-- name: forget_ids (postgres)
WITH o AS MATERIALIZED (
    SELECT x.partition_id, x.transaction_id FROM fairlane.cancelled_ids x
    WHERE x.kept_until <= coalesce(:now, clock_timestamp())
    LIMIT 100 FOR UPDATE SKIP LOCKED
)
DELETE FROM fairlane.cancelled_ids c USING o WHERE c.partition_id = o.partition_id AND c.transaction_id = o.transaction_id

-- name: forget_ids (sqlite)
delete from cancelled_ids where (partition_id, transaction_id) in (
    select partition_id, transaction_id from cancelled_ids where kept_until <= :now limit 100
)

-- name: was_scheduled
SELECT 1 FROM fairlane.cancelled_ids c WHERE c.partition_id = :partition_id AND c.transaction_id = :transaction_id
