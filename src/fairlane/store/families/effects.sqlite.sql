-- name: get
select value from effects
where tenant = :tenant and partition_id = :partition_id and key = :key and kept_until > :now

-- name: forget
delete from effects where (tenant, partition_id, key) in (
    select tenant, partition_id, key from effects where kept_until <= :now limit 100
)

-- name: keep
-- The update of a row that stays as it is gives back the one that is there.
insert into effects (tenant, partition_id, key, value, kept_until)
values (:tenant, :partition_id, :key, :value, :now + :seconds * 1000000)
on conflict (tenant, partition_id, key) do update set
    value = iif(kept_until > :now, value, excluded.value),
    kept_until = max(kept_until, excluded.kept_until)
returning value
