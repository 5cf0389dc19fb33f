-- name: token (in is_cancelled)
select token from cancellations where partition_id = ? and group_id = ? and position = ?

-- name: holder (in cancel_in_lane)
select token from claims
where partition_id = ?1 and group_id = ?2 and first_pos <= ?3 and upto > ?3 and ends_at > ?4
union all
select token from failures where partition_id = ?1 and group_id = ?2 and position = ?3 and due_at > ?4 and token is not null

-- name: insert (in cancel_in_lane)
insert or ignore into cancellations (partition_id, group_id, position, token, cancelled_at) values (?, ?, ?, ?, ?)

-- name: within (in cancelled)
select position from cancellations where partition_id = ? and group_id = ? and position >= ? and position < ? order by position

-- name: of_lease (in cancelled_of_lease)
select partition_id, position from cancellations where group_id = ? and token = ? order by 1, 2
