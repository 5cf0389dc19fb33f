-- name: tenant_id
select id from tenants where name = ?

-- name: insert_tenant (only here: the schema of PostgreSQL makes the tenant)
insert into tenants (name) values (?) returning id

-- name: get
select q.id, t.name, q.name, q.namespace, q.task, q.options, q.created_at
from queues q join tenants t on t.id = q.tenant_id
where t.name = ? and q.name = ?

-- name: list
select q.id, t.name, q.name, q.namespace, q.task, q.options, q.created_at
from queues q join tenants t on t.id = q.tenant_id
where t.name = ?
order by q.id desc

-- name: make
insert into queues (tenant_id, name, namespace, task, options, created_at)
values (?, ?, ?, ?, ?, ?)
returning id

-- name: configure
update queues set options = ?, namespace = ?, task = ? where id = ?

-- name: wake
-- Stopped lanes, and those that sleep no longer than the delay and window that the queue had so far could let them: the pop that
-- meets them decides by what holds now. Longer sleeps are those that a failure asked for.
update cursors set ready_at = ?2
where ready_at > ?2 and lease is null
    and partition_id in (select id from partitions where queue_id = ?1)
    and (ready_at = ?5
        or ready_at <= ?4 + (select p.last_at from partitions p where p.id = partition_id)
        or ready_at <= ?3 + (select s.created_at from segments s
            where s.partition_id = cursors.partition_id and s.first_pos <= committed order by s.first_pos desc limit 1))

-- name: any_partition
select exists (select 1 from partitions where queue_id = ?)

-- name: exists (in lock)
select 1 from queues where id = ?

-- name: delete
delete from queues where id = ?

-- name: delete_data_keys
delete from data_keys where queue_id = ?

-- name: delete_groups
delete from groups where queue_id = ?

-- name: insert_purge
insert into purges (queue_id) values (?)

-- name: purges
select queue_id from purges limit 1

-- name: partitions_to_purge
select id from partitions where queue_id = ? limit 1

-- name: delete_purge
delete from purges where queue_id = ?

-- name: purge_segments
delete from segments where rowid in (select rowid from segments where partition_id = ? limit ?)

-- name: purge_message_keys
delete from message_keys
where (partition_id, key) in (select partition_id, key from message_keys where partition_id = ? limit ?)

-- name: purge_deleted_ids
delete from deleted_ids where rowid in (select rowid from deleted_ids where partition_id = ? limit ?)

-- name: purge_cursors
delete from cursors
where (partition_id, group_id) in (select partition_id, group_id from cursors where partition_id = ? limit ?)

-- name: purge_claims
delete from claims
where (partition_id, group_id, first_pos) in
    (select partition_id, group_id, first_pos from claims where partition_id = ? limit ?)

-- name: purge_failures
delete from failures where rowid in (select rowid from failures where partition_id = ? limit ?)

-- name: purge_dead_letters
delete from dead_letters where rowid in (select rowid from dead_letters where partition_id = ? limit ?)

-- name: purge_results
delete from results where rowid in (select rowid from results where partition_id = ? limit ?)

-- name: purge_scheduled_messages (in purge_scheduled)
delete from scheduled_messages
where id in (select m.id from scheduled_segments b join scheduled_messages m on m.id = b.id where b.partition_id = ? limit ?)

-- name: purge_scheduled_keys (in purge_scheduled)
delete from scheduled_keys
where (partition_id, key) in (select partition_id, key from scheduled_keys where partition_id = ? limit ?)

-- name: purge_scheduled_segments (in purge_scheduled)
delete from scheduled_segments where id in (select id from scheduled_segments where partition_id = ? limit ?)

-- name: purge_skips
delete from skips
where (partition_id, position, group_id) in
    (select partition_id, position, group_id from skips where partition_id = ? limit ?)

-- name: purge_traced
delete from traced where (trace_id, partition_id, position) in
    (select trace_id, partition_id, position from traced where partition_id = ? limit ?)

-- name: purge_traces
delete from traces where rowid in (select rowid from traces where partition_id = ? limit ?)

-- name: purge_trace_names
delete from trace_names
where (tenant_id, name, created_at, trace_id) in
    (select tenant_id, name, created_at, trace_id from trace_names where partition_id = ? limit ?)

-- name: purge_stream_state
delete from stream_state where rowid in (select rowid from stream_state where partition_id = ? limit ?)

-- name: purge_trims
delete from trims where partition_id in (select partition_id from trims where partition_id = ? limit ?)

-- name: purge_expiries
delete from expiries where partition_id = ? and ? > 0

-- name: purge_partitions
delete from partitions where id = ?

-- name: partition_id (in born)
select id from partitions where queue_id = ? and name = ?

-- name: priority_lead (in set_priority)
select priority_lead from partitions where id = ?

-- name: set_priority
update partitions set priority_lead = ? where id = ?

-- name: move_ready (in set_priority)
update cursors set ready_at = ready_at + ?1 where partition_id = ?2 and lease is null and ready_at <= ?3

-- name: insert_partition (in born)
insert into partitions (queue_id, name, created_at) values (?, ?, ?) returning id

-- name: partition
select p.id, p.queue_id, p.name, q.options ->> '$.ordering' = 'unordered'
from partitions p join queues q on q.id = p.queue_id
where p.id = ?

-- name: named
select p.id, q.options ->> '$.ordering' = 'unordered'
from partitions p join queues q on q.id = p.queue_id
where p.queue_id = ? and p.name = ?

-- name: partitions
select p.id, p.name, p.start, p.head, p.last_at, p.created_at
from partitions p join queues q on q.id = p.queue_id
where p.queue_id = ? and p.name > ?
order by p.name
limit ?

-- name: options_and_depth (in depth)
select options, depth from queues where id = ?

-- name: unfinished
-- With the messages that wait in open operations, whose places are taken.
select coalesce(sum(x.head - x.done
    - (select count(*) from skips s where s.partition_id = x.id and s.group_id = 0 and s.position >= x.done)), 0)
    + (select coalesce(sum(messages), 0) from operation_backlogs where queue_id = ?1)
from (
    select p.id, p.head, coalesce((select min(max(c.committed, c.claimed)) from counting c where c.partition_id = p.id), p.start) as done
    from partitions p
    where p.queue_id = ?1
) x

-- name: set_depth
update queues set depth = ? where id = ?

-- name: changed
insert into catalogue_changes (queue_id) values (?) returning version

-- name: forget_changes
delete from catalogue_changes where version <= ?

-- name: version
select coalesce((select seq from sqlite_sequence where name = 'catalogue_changes'), 0)

-- name: changes (in changed)
select queue_id from catalogue_changes where version > ? order by version
