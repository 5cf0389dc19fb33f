-- part: key
id, tenant, name, role, scopes, hash, old_hash, old_until, created_at, created_by, expires_at, used_at, revoked_at

-- name: add
insert into api_keys (id, tenant, name, role, scopes, hash, created_at, created_by, expires_at)
values (:id, :tenant, :name, :role, :scopes, :hash, :now, :created_by, :expires_at)
on conflict (tenant, name) where revoked_at is null do nothing
returning id

-- name: count
select count(*) from api_keys

-- name: known
select {key} from api_keys where revoked_at is null

-- name: list
select {key} from api_keys where tenant = :tenant order by created_at, id

-- name: get
select {key} from api_keys
where tenant = :tenant and (id = :named or (name = :named and revoked_at is null))
order by id <> :named limit 1

-- name: revoke
update api_keys set revoked_at = coalesce(revoked_at, :now) where tenant = :tenant and id = :id
returning {key}

-- name: rotate
update api_keys set old_hash = hash, hash = :hash, old_until = :now + :seconds * 1000000
where tenant = :tenant and id = :id and revoked_at is null
returning {key}

-- name: used
update api_keys set used_at = :now where id in (select value from json_each(:ids))
