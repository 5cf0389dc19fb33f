-- name: beat
insert into workers (tenant, id, facts, seen_at) values (:tenant, :id, :facts, :now)
on conflict (tenant, id) do update set facts = excluded.facts, seen_at = excluded.seen_at

-- name: forget
delete from workers where seen_at < :now - :seconds * 1000000

-- name: list
select id, facts, seen_at from workers where tenant = :tenant and seen_at >= :now - :seconds * 1000000 order by id

-- name: leave
delete from workers where tenant = :tenant and id = :id returning id
