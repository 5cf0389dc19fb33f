-- name: on
select name from flags where enabled

-- name: turn
insert into flags (name, enabled, changed_at) values (:name, :on, :now)
on conflict (name) do update set enabled = excluded.enabled, changed_at = excluded.changed_at
