-- name: report (postgres)
INSERT INTO fairlane.progress AS x (partition_id, group_id, position, token, report, reported_at)
SELECT u.partition_id, u.group_id, u.position, u.token, u.report, coalesce(:now, clock_timestamp())
FROM unnest(:partition_ids::bigint[], :group_ids::bigint[], :positions::bigint[], :tokens::uuid[], :reports::bytea[])
     u(partition_id, group_id, position, token, report)
WHERE EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = u.partition_id AND k.group_id = u.group_id
              AND k.lease = u.token AND k.ready_at > coalesce(:now, clock_timestamp())
              AND k.committed <= u.position AND k.lease_end > u.position)
   OR EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = u.partition_id AND c.group_id = u.group_id
              AND c.token = u.token AND c.ends_at > coalesce(:now, clock_timestamp())
              AND c.first_pos <= u.position AND c.upto > u.position)
   OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = u.partition_id AND f.group_id = u.group_id
              AND f.token = u.token AND f.due_at > coalesce(:now, clock_timestamp()) AND f.position = u.position)
ON CONFLICT (partition_id, group_id, position) DO UPDATE
SET token = excluded.token, report = excluded.report, reported_at = excluded.reported_at
RETURNING position

-- name: report (sqlite)
-- Each:
insert into progress (partition_id, group_id, position, token, report, reported_at)
select :partition_ids, :group_ids, :positions, :tokens, :reports, :now
where exists (select 1 from cursors k where k.partition_id = :partition_ids and k.group_id = :group_ids
              and k.lease = :tokens and k.ready_at > :now and k.committed <= :positions and k.lease_end > :positions)
   or exists (select 1 from claims c where c.partition_id = :partition_ids and c.group_id = :group_ids
              and c.token = :tokens and c.ends_at > :now and c.first_pos <= :positions and c.upto > :positions)
   or exists (select 1 from failures f where f.partition_id = :partition_ids and f.group_id = :group_ids
              and f.token = :tokens and f.due_at > :now and f.position = :positions)
on conflict (partition_id, group_id, position) do update
set token = excluded.token, report = excluded.report, reported_at = excluded.reported_at
returning position

-- name: of_message
-- The progress that the present holders of a message reported.
SELECT x.group_id, x.report, x.reported_at FROM fairlane.progress x
WHERE x.partition_id = :partition_id AND x.position = :position
  AND (EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = x.partition_id AND k.group_id = x.group_id
               AND k.lease = x.token AND k.ready_at > coalesce(:now, clock_timestamp())
               AND k.committed <= x.position AND k.lease_end > x.position)
       OR EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = x.partition_id AND c.group_id = x.group_id
                  AND c.token = x.token AND c.ends_at > coalesce(:now, clock_timestamp())
                  AND c.first_pos <= x.position AND c.upto > x.position)
       OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = x.partition_id AND f.group_id = x.group_id
                  AND f.token = x.token AND f.due_at > coalesce(:now, clock_timestamp()) AND f.position = x.position))

-- name: forget (postgres)
DELETE FROM fairlane.progress x WHERE (x.partition_id, x.group_id, x.position) IN (
    SELECT o.partition_id, o.group_id, o.position FROM fairlane.progress o
    WHERE o.reported_at <= coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
    LIMIT 100 FOR UPDATE SKIP LOCKED
)

-- name: forget (sqlite)
delete from progress where (partition_id, group_id, position) in (
    select partition_id, group_id, position from progress where reported_at <= :now - :seconds * 1000000 limit 100
)
