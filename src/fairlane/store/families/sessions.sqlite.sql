-- name: add
insert into sessions (hash, tenant, owner, key_hash, caller, created_at, expires_at)
values (:hash, :tenant, :owner, :key_hash, :caller, :now, :expires_at)

-- name: forget
delete from sessions where expires_at <= :now or hash in (
    select hash from sessions where tenant = :tenant and owner = :owner
    order by created_at desc, hash limit -1 offset :keep)

-- name: known
select hash, tenant, owner, key_hash, caller, expires_at from sessions where expires_at > :now

-- name: end
delete from sessions where hash = :hash returning hash
