-- name: get
select tenant, name, options, revision, next_at, paused_at from schedules where tenant = :tenant and name = :name

-- name: list
select tenant, name, options, revision, next_at, paused_at from schedules where tenant = :tenant order by name

-- name: due
select tenant, name, options, revision, next_at, paused_at from schedules
where next_at <= :now order by next_at limit :limit

-- name: next
select min(next_at), :now from schedules where next_at is not null

-- name: put
insert into schedules (tenant, name, options, revision, next_at)
values (:tenant, :name, :options, :revision, :next_at)
on conflict (tenant, name) do update set options = excluded.options, revision = excluded.revision,
    next_at = iif(paused_at is null, excluded.next_at, null)
where options <> excluded.options

-- name: delete
delete from schedules where tenant = :tenant and name = :name returning name

-- name: turn
update schedules set revision = :revision, next_at = :next_at,
    paused_at = iif(:next_at is null, coalesce(paused_at, :now), null)
where tenant = :tenant and name = :name
returning tenant, name, options, revision, next_at, paused_at

-- name: advance
update schedules set revision = :revision, next_at = :next_at
where tenant = :tenant and name = :name and revision = :before
returning name
