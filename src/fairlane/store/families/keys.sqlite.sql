-- name: add
insert into data_keys (id, queue_id, kek, wrapped, created_at) values (:id, :queue_id, :kek, :wrapped, :now)
on conflict do nothing

-- name: get
select id, queue_id, kek, wrapped from data_keys where id in (select unhex(i.value) from json_each(:ids) i)

-- name: of_queue
select id, queue_id, kek, wrapped from data_keys where queue_id = :queue_id order by created_at, id

-- name: under_others
select id, queue_id, kek, wrapped from data_keys where kek <> :kek and id > :after order by id limit :limit

-- name: rewrap
update data_keys set kek = :kek, wrapped = :wrapped where id = :id and kek = :under returning id
