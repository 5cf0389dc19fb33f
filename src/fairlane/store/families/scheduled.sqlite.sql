-- name: list
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
select min(next_at), :now from scheduled_segments
