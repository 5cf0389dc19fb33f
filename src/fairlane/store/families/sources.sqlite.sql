-- name: get
select name, revision, cursor, token, leased_until, created_at, sweep, sweeping, sweep_cursor, swept_at,
       committed_at, records, id
from sources where tenant = :tenant and name = :name

-- name: list
select name, revision, cursor, token, leased_until, created_at, sweep, sweeping, sweep_cursor, swept_at,
       committed_at, records, id
from sources where tenant = :tenant order by name

-- name: lease
insert into sources (tenant, name, leased_until, created_at) values (:tenant, :name, :now + :seconds * 1000000, :now)
on conflict (tenant, name) do update set token = token + 1, leased_until = excluded.leased_until
where leased_until is null or leased_until <= :now
returning name, revision, cursor, token, leased_until, created_at, sweep, sweeping, sweep_cursor, swept_at,
          committed_at, records, id

-- name: keep
update sources set leased_until = :now + :seconds * 1000000
where tenant = :tenant and name = :name and token = :token and leased_until > :now
returning name, revision, cursor, token, leased_until, created_at, sweep, sweeping, sweep_cursor, swept_at,
          committed_at, records, id

-- name: release
update sources set leased_until = null
where tenant = :tenant and name = :name and token = :token and leased_until > :now
returning id

-- name: delete
delete from sources where tenant = :tenant and name = :name returning id

-- name: delete_records
delete from shadow_records where source_id = :source_id

-- name: delete_copies
delete from shadow_copies where source_id = :source_id

-- name: known
select key, hash from shadow_records
where source_id = :source_id and key in (select k.value from json_each(:keys) k)

-- name: unseen
select r.key, length(c.data) from shadow_records r join shadow_copies c on c.source_id = r.source_id and c.key = r.key
where r.source_id = :source_id and r.sweep < :sweep order by r.sweep, r.key limit :limit

-- name: copies
select key, partition, data from shadow_copies
where source_id = :source_id and key in (select k.value from json_each(:keys) k)

-- name: step
update sources set revision = :revision, cursor = :cursor, sweep = :sweep, sweeping = :sweeping,
    sweep_cursor = :sweep_cursor, swept_at = iif(:swept, :now, swept_at), committed_at = :now, records = :records
where tenant = :tenant and name = :name and id = :source_id and revision = :before
  and token = :token and leased_until > :now
returning id

-- name: see
insert into shadow_records (source_id, key, hash, sweep)
select :source_id, s.key, s.value, :sweep from json_each(:seen) s where true
on conflict (source_id, key) do update set hash = excluded.hash, sweep = excluded.sweep

-- name: copy
-- Each:
insert into shadow_copies (source_id, key, partition, data) values (:source_id, :keys, :partitions, :data)
on conflict (source_id, key) do update set partition = excluded.partition, data = excluded.data

-- name: forget
delete from shadow_records where source_id = :source_id and key in (select g.value from json_each(:gone) g)

-- name: forget_copies
delete from shadow_copies where source_id = :source_id and key in (select g.value from json_each(:gone) g)
