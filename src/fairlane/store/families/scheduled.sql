-- name: change (postgres, steps)
SELECT fairlane.change_scheduled(:partition_id, :keys, :id_ms, :transaction_id, :move, :due_at, :delay_ms, :new_id, :now)

-- name: is_scheduled (postgres, steps)
SELECT fairlane.is_scheduled(:partition_id, :keys, :id_times, :transaction_id)

-- name: page (postgres)
WITH found AS MATERIALIZED (
    SELECT b.id, d.at, d.i
    FROM fairlane.scheduled_segments b
    JOIN fairlane.scheduled_messages m ON m.id = b.id
    CROSS JOIN LATERAL unnest(m.due) WITH ORDINALITY d(at, i)
    WHERE b.queue_id = :queue_id AND b.last_at >= fairlane.at_us(:after_at) AND d.i > b.taken
      AND (d.at > :after_at OR d.at = :after_at AND encode(substring(m.body FROM coalesce(m.ends[d.i - 1], 0) + 8 FOR 36), 'escape') > :after_id))
SELECT b.partition_id, b.partition_name::text, substring(m.body FROM coalesce(m.ends[f.i - 1], 0) + 1 FOR 2200) AS head, f.at
FROM found f
JOIN fairlane.scheduled_segments b ON b.id = f.id
JOIN fairlane.scheduled_messages m ON m.id = f.id
WHERE f.at <= coalesce((SELECT l.at FROM found l ORDER BY l.at LIMIT 1 OFFSET :limit - 1), f.at)
ORDER BY f.at, substring(m.body FROM coalesce(m.ends[f.i - 1], 0) + 8 FOR 36)
LIMIT :limit

-- name: page (sqlite)
with found (segment, i, due_at) as materialized (
    select b.id, j.key, j.value
    from scheduled_segments b join scheduled_messages m on m.id = b.id, json_each(m.due) j
    where b.queue_id = :queue_id and b.last_at >= :after_at and j.key >= b.taken
      and (j.value > :after_at or j.value = :after_at
           and cast(substr(m.body, iif(j.key = 0, 0, json_extract(m.ends, '$[' || (j.key - 1) || ']')) + 8, 36) as text) > :after_id)
)
select b.partition_id, b.partition_name,
       substr(m.body, iif(f.i = 0, 0, json_extract(m.ends, '$[' || (f.i - 1) || ']')) + 1, 2200) as head, f.due_at
from found f join scheduled_segments b on b.id = f.segment join scheduled_messages m on m.id = f.segment
where f.due_at <= coalesce((select due_at from found order by due_at limit 1 offset :limit - 1), f.due_at)
order by f.due_at, substr(head, 8, 36)
limit :limit

-- name: next_at
SELECT min(b.next_at) AS next_at, coalesce(:now, clock_timestamp()) AS now FROM fairlane.scheduled_segments b
