-- name: lead
insert into leadership (name, token, leads_until, rests_until) values (:name, 1, :now + :seconds * 1000000, 0)
on conflict (name) do update set token = token + 1, leads_until = excluded.leads_until
where leads_until <= :now and (:early or rests_until <= :now)
returning token

-- name: keep
update leadership set leads_until = :now + :seconds * 1000000
where name = :name and token = :token and leads_until > :now
returning token

-- name: rest
update leadership set leads_until = 0, rests_until = :now + :seconds * 1000000 where name = :name and token = :token
