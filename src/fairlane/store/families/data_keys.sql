-- name: add
INSERT INTO fairlane.data_keys (id, queue_id, kek, wrapped, created_at)
VALUES (:id, :queue_id, :kek, :wrapped, coalesce(:now, clock_timestamp())) ON CONFLICT DO NOTHING

-- name: get (postgres)
SELECT k.id, k.queue_id, k.kek, k.wrapped FROM fairlane.data_keys k
WHERE k.id = ANY (ARRAY(SELECT decode(i, 'hex') FROM json_array_elements_text(:ids::json) i))

-- name: get (sqlite)
select id, queue_id, kek, wrapped from data_keys where id in (select unhex(i.value) from json_each(:ids) i)

-- name: of_queue
SELECT k.id, k.queue_id, k.kek, k.wrapped FROM fairlane.data_keys k
WHERE k.queue_id = :queue_id ORDER BY k.created_at, k.id

-- name: wrapped_by_others
SELECT k.id, k.queue_id, k.kek, k.wrapped FROM fairlane.data_keys k
WHERE k.kek <> :kek AND k.id > :after ORDER BY k.id LIMIT :limit

-- name: rewrap
UPDATE fairlane.data_keys AS k SET kek = :kek, wrapped = :wrapped WHERE k.id = :id AND k.kek = :under RETURNING id
