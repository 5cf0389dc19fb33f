-- name: partition_log (in add_scheduled)
select queue_id, head, last_at, newest_id_at, keyed_until, doubted_until from partitions where id = ?

-- name: lanes_by_priority (in push)
-- The other lanes of a partition of an unordered queue, each of one priority: p, p!1 .. p!9.
select s.id, s.head, s.newest_id_at, s.keyed_until, s.doubted_until
from partitions p
join json_each('["","!1","!2","!3","!4","!5","!6","!7","!8","!9"]') n
join partitions s on s.queue_id = p.queue_id
    and s.name = iif(substr(p.name, -2) glob '![1-9]', substr(p.name, 1, length(p.name) - 2), p.name) || n.value
where p.id = ? and s.id <> p.id

-- name: logs_and_queues (in push)
-- One row for all, so that reading them is one step.
select
    (
        select json_group_array(
            json_array(id, queue_id, head, last_at, newest_id_at, keyed_until, open_operations, start, doubted_until)
        )
        from partitions
        where id in (select value from json_each(?1))
    ),
    (
        select json_group_array(
            json_array(
                q.id, q.options, q.depth, exists (select 1 from groups g where g.queue_id = q.id and g.seed_after is not null)
            )
        )
        from queues q
        where q.id in (select value from json_each(?2))
    )

-- name: expires_at (in push)
insert or replace into expiries (partition_id, due_at) values (?, ?)

-- name: insert_segment (in push)
-- A refused row, which never happens, would roll back the transaction: otherwise SQLite copies every page that a statement of
-- many rows changes, beyond 64 KiB into a file, which costs three times as much as the rows.
insert or rollback into segments (partition_id, first_pos, n, created_at, checksum, ends, keys, body)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_key (in push)
insert or replace into message_keys (partition_id, key, transaction_id, message_id, position, created_at)
values (?, ?, ?, ?, ?, ?)

-- name: move_head (in push)
update or rollback partitions
set head = v.column1, last_at = v.column2, newest_id_at = v.column3, keyed_until = v.column4, doubted_until = v.column5
from (values (?, ?, ?, ?, ?, ?)) v
where partitions.id = v.column6

-- name: add_traced
insert or ignore into traced (trace_id, partition_id, position) values (?, ?, ?)

-- name: wake (in push)
update cursors set ready_at = ?1 - (select p.priority_lead from partitions p where p.id = cursors.partition_id)
where partition_id in (select value from json_each(?2)) and ready_at is null

-- name: known_keys (in look_up)
select m.key, m.position, m.message_id, m.transaction_id
from json_each(?) k cross join message_keys m
where m.partition_id = ? and m.key = k.value and m.created_at >= ?

-- name: keys_backward (in look_up)
select first_pos, created_at, keys from segments where partition_id = ? order by first_pos desc

-- name: keys_forward (in look_up)
select first_pos, created_at, keys from segments where partition_id = ? and first_pos >= ? order by first_pos

-- name: segment_at (in dead_letter)
select first_pos, created_at, ends, body, checksum
from segments
where partition_id = ? and first_pos <= ?
order by first_pos desc
limit 1

-- name: segment_time_at (in position_at)
select first_pos, n, created_at
from segments
where partition_id = ? and first_pos <= ?
order by first_pos desc
limit 1

-- name: segments_between
select first_pos, created_at, ends, body, checksum
from segments
where partition_id = ?1
    and first_pos >= coalesce((select max(first_pos) from segments where partition_id = ?1 and first_pos <= ?2), ?2)
    and first_pos < ?3
order by first_pos

-- name: segments_described (in pop)
select first_pos, created_at, checksum
from segments
where partition_id = ?1
    and first_pos >= coalesce((select max(first_pos) from segments where partition_id = ?1 and first_pos <= ?2), ?2)
    and first_pos < ?3
order by first_pos

-- name: log_bounds (in position_at)
select p.start, p.head
from partitions p join queues q on q.id = p.queue_id
where p.id = ?

-- name: key_positions (in find_key)
select transaction_id, position from message_keys where partition_id = ? and key in (?, ?)

-- name: queue_of_pop (in pop)
select q.options, g.seed_after is not null, coalesce(q.paused_at, g.paused_at), g.conflation,
    exists (select 1 from groups o where o.queue_id = q.id and o.id <> g.id)
from groups g join queues q on q.id = g.queue_id
where g.id = ? and q.id = ?

-- name: ready_lanes (in pop)
select c.partition_id, c.group_id, c.committed, c.ready_at, c.lease, c.lease_start, c.lease_end, c.leased_at,
    c.last_lease, c.probe_until, c.failing, c.dead, c.expired, c.parked, p.paused_at, p.head,
    p.queue_id, p.name, p.priority_lead
from cursors c cross join partitions p
where c.group_id = ? and c.ready_at <= ? and p.id = c.partition_id
order by c.ready_at, c.partition_id
limit ?

-- name: lane (in pop)
select c.partition_id, c.group_id, c.committed, c.ready_at, c.lease, c.lease_start, c.lease_end, c.leased_at,
    c.last_lease, c.probe_until, c.failing, c.dead, c.expired, c.parked, p.paused_at, p.head,
    p.queue_id, p.name, p.priority_lead,
    exists (select 1 from operation_backlogs l where l.partition_id = c.partition_id and l.group_id = c.group_id), q.options
from cursors c
cross join partitions p
cross join queues q
where c.partition_id = ? and c.group_id = ? and p.id = c.partition_id and q.id = p.queue_id

-- name: save_lane (in pop)
update cursors
set committed = ?, ready_at = ?, lease = ?, lease_start = ?, lease_end = ?, leased_at = ?, last_lease = ?,
    probe_until = ?, failing = ?, dead = ?, expired = ?, parked = ?
where partition_id = ? and group_id = ?

-- name: lease_lane (in pop)
update cursors set lease = ?, lease_start = ?, lease_end = ?, leased_at = ?, ready_at = ?
where partition_id = ? and group_id = ?

-- name: move_cursor (in ack)
update cursors set committed = ? where partition_id = ? and group_id = ?

-- name: end_lease (in ack)
update cursors
set committed = ?, ready_at = ?, last_lease = lease, lease = null, lease_start = null
where partition_id = ? and group_id = ?

-- name: others_committed (in count_finished)
select min(committed) from counting where partition_id = ? and group_id <> ?

-- name: counts (in counts)
select counts from groups where id = ?

-- name: failure (in pop)
select attempts, error, first_failed_at, failed_at, history, retry_limit, traceback
from failures
where partition_id = ? and group_id = ? and position = ?

-- name: next_failure (in expire)
select min(position) from failures where partition_id = ? and group_id = ? and position >= ?

-- name: expire_parts (in expire)
-- Parts of fan-ins: afterwards their messages look as if they were finished.
update fan_in_parts set status = 'expired', ended_at = ?5
where partition_id = ?1 and position >= ?2 and position < ?3 and status is null
    and group_name = (select g.name from groups g where g.id = ?4)
    and not exists (select 1 from skips s where s.partition_id = ?1 and s.position = fan_in_parts.position
        and s.group_id in (0, ?4))

-- name: last_at (in pop)
select last_at from partitions where id = ?

-- name: next_used_up (in pop)
select min(position) from failures where partition_id = ? and group_id = ? and position > ? and attempts > coalesce(retry_limit, ?)

-- name: fail (in pop)
insert into failures (partition_id, group_id, position, attempts, error, traceback, first_failed_at, failed_at, retry_limit)
values (?1, ?2, ?3, 1, ?4, ?5, ?6, ?6, ?7)
on conflict do update set attempts = attempts + 1, error = excluded.error, traceback = excluded.traceback,
    failed_at = excluded.failed_at,
    history = json_insert(iif(json_array_length(history) >= 9, json_remove(history, '$[0]'), history), '$[#]',
        json_object('at', failed_at, 'error', error, 'traceback', traceback))
returning attempts, retry_limit

-- name: drop_failures (in ack)
delete from failures where partition_id = ? and group_id = ? and position < ?

-- name: drop_skips (in ack)
delete from skips where partition_id = ?1 and group_id = ?2 and position < ?3

-- name: any_obstacle (in has_obstacles)
select exists (select 1 from failures where partition_id = ?1 and group_id = ?2)
    or exists (select 1 from skips where partition_id = ?1 and position >= ?3 and group_id in (0, ?2))

-- name: skips_from (in next_deliverable)
select position from skips where partition_id = ? and position >= ? and group_id in (0, ?) order by position

-- name: forget_failure (in ack)
delete from failures where partition_id = ? and group_id = ? and position = ?

-- name: finish_ahead (in ack)
insert into skips (partition_id, group_id, position, created_at)
select ?1, ?2, ?3, ?4
where not exists (select 1 from skips where partition_id = ?1 and position = ?3 and group_id in (0, ?2))

-- name: skips_between (in has_open)
select count(*) from skips where partition_id = ? and position >= ? and position < ? and group_id in (0, ?)

-- name: next_skip (in next_skip)
select min(position) from skips where partition_id = ? and position >= ? and group_id in (0, ?)

-- name: holes (in count_finished)
select count(*) from skips where partition_id = ? and group_id = 0 and position >= ? and position < ?

-- name: is_there (in has_message)
select exists (select 1 from partitions where id = ?1 and start <= ?2 and head > ?2)
    and not exists (select 1 from skips where partition_id = ?1 and position = ?2 and group_id = 0)

-- name: with_earlier (in add_to_history)
select json_insert(iif(json_array_length(?1) >= 9, json_remove(?1, '$[0]'), ?1), '$[#]',
    json_object('at', ?2, 'error', ?3, 'traceback', ?4))

-- name: insert_dead_letter (in dead_letter)
insert or replace into dead_letters (partition_id, group_id, position, queue_id, message_created_at, attempts,
    first_failed_at, failed_at, error, message, history, traceback, forward_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
    (select ?8 from queues where id = ?4 and json_type(options, '$.dead_letter_queue') = 'text'))

-- name: insert_result (in ack)
insert or replace into results (partition_id, group_id, position, created_at, result) values (?, ?, ?, ?, ?)

-- name: expiring
select q.id, g.id from queues q join groups g on g.queue_id = q.id
where max(q.options ->> '$.ttl_seconds', q.options ->> '$.max_wait_seconds') > 0

-- name: renew
update cursors
set ready_at = max(ready_at, ?1)
where group_id = ?2 and ready_at > ?3 and lease = ?4 and exists (select 1 from groups where id = ?2)
returning ready_at

-- name: release
update cursors
set ready_at = ?1, lease = null, lease_start = null,
    -- If none of its messages was finished, the lane remembers the previous lease, whose acks may be repeated.
    last_lease = case when committed > lease_start or (failing and exists (
        select 1 from skips s where s.partition_id = cursors.partition_id and s.group_id = cursors.group_id
            and s.position >= lease_start and s.position < lease_end)) then lease else last_lease end
where group_id = ?2 and ready_at > ?1 and lease = ?3 and (?4 is null or partition_id = ?4)
    and exists (select 1 from groups where id = ?2)
returning partition_id

-- name: leased
select c.partition_id, c.lease_start, c.lease_end, c.committed, c.ready_at
from groups g join cursors c on c.group_id = g.id
where g.id = ? and c.ready_at > ? and c.lease = ?
order by c.partition_id
