-- name: report (postgres)
SELECT x.position FROM fairlane.report_progress(:partition_ids, :group_ids, :positions, :tokens, :reports, :now) x(position)

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
WITH o AS MATERIALIZED (
    SELECT x.partition_id, x.group_id, x.position FROM fairlane.progress x
    WHERE x.reported_at <= coalesce(:now, clock_timestamp()) - make_interval(secs => :seconds)
    LIMIT 100 FOR UPDATE SKIP LOCKED
)
DELETE FROM fairlane.progress p USING o
WHERE p.partition_id = o.partition_id AND p.group_id = o.group_id AND p.position = o.position

-- name: forget (sqlite)
delete from progress where (partition_id, group_id, position) in (
    select partition_id, group_id, position from progress where reported_at <= :now - :seconds * 1000000 limit 100
)
