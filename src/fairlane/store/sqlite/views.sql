-- Views for people, the same on both stores. They are recreated when this text changes. They count rows, so on a large store
-- select a queue: where queue = 'orders'. Times come from the system clock. Users query the views with their own SQLite, so only
-- features of SQLite 3.38 may be used here.

-- Every stored message. Messages of encrypted queues have no data here.
create view messages as
with bounds as (
    select
        s.partition_id, s.first_pos + e.key as position, s.created_at, s.body, e.value as upto,
        case e.key when 0 then 0 else json_extract(s.ends, '$[' || (e.key - 1) || ']') end as since
    from segments s, json_each(s.ends) e
),
texts as (
    select partition_id, position, created_at,
        cast(substr(body, since + 1, upto - since) as text) || '}' as message
    from bounds
)
select
    t.name as tenant,
    q.name as queue,
    p.name as partition,
    m.position,
    iif(json_valid(m.message), m.message ->> '$.id', null) as id,
    iif(json_valid(m.message), m.message ->> '$.transactionId', null) as transaction_id,
    iif(json_valid(m.message), m.message ->> '$.traceId', null) as trace_id,
    iif(json_valid(m.message), m.message ->> '$.type', null) as type,
    iif(json_valid(m.message), m.message -> '$.headers', null) as headers,
    strftime('%Y-%m-%dT%H:%M:%S', m.created_at / 1000000, 'unixepoch') || printf('.%06dZ', m.created_at % 1000000) as created_at,
    iif(json_valid(m.message), m.message -> '$.data', null) as data
from texts m
join partitions p on p.id = m.partition_id and m.position >= p.start
join queues q on q.id = p.queue_id
join tenants t on t.id = q.tenant_id
where not exists (
    select 1 from skips x where x.partition_id = m.partition_id and x.position = m.position and x.group_id = 0);

-- Every partition as each group sees it, with times in microseconds. `lag`: unfinished messages of the group. `leased`: those that
-- consumers hold now. `position`: everything below is finished. `oldest_at`: push time of the message there.
create view lanes as
select
    t.name as tenant,
    q.name as queue,
    g.name as "group",
    p.name as partition,
    p.head - max(k.committed, k.claimed)
        - (select count(*) from skips x where x.partition_id = k.partition_id and x.group_id in (0, k.group_id)
            and x.position >= max(k.committed, k.claimed))
        + (select coalesce(sum(c.upto - c.first_pos), 0) from claims c
            where c.partition_id = k.partition_id and c.group_id = k.group_id)
        + (select count(*) from failures f
            where f.partition_id = k.partition_id and f.group_id = k.group_id and f.due_at is not null) as lag,
    iif(k.lease is not null and k.ready_at > (julianday('now') - 2440587.5) * 86400000000, k.lease_end - k.committed, 0)
        + (select coalesce(sum(c.upto - c.first_pos), 0) from claims c
            where c.partition_id = k.partition_id and c.group_id = k.group_id and c.ends_at > (julianday('now') - 2440587.5) * 86400000000)
        + (select count(*) from failures f where f.partition_id = k.partition_id and f.group_id = k.group_id
            and f.token is not null and f.due_at > (julianday('now') - 2440587.5) * 86400000000) as leased,
    k.committed as position,
    (select s.created_at from segments s where s.partition_id = k.partition_id and s.first_pos <= k.committed
        and k.committed < p.head order by s.first_pos desc limit 1) as oldest_at,
    k.dead as dead_letters,
    k.expired,
    case when coalesce(q.paused_at, g.paused_at, p.paused_at) is not null then 'paused' when k.parked then 'parked'
        when k.ready_at = 253370764800000000 then 'blocked' end as stopped,
    coalesce(q.paused_at, g.paused_at, p.paused_at) as paused_at,
    k.ready_at,
    q.id as queue_id,
    k.partition_id,
    k.group_id
from cursors k
join partitions p on p.id = k.partition_id
join groups g on g.id = k.group_id
join queues q on q.id = p.queue_id
join tenants t on t.id = q.tenant_id;

-- The lag of every group of a queue. `messages`: retained ones. Without a group all of them are the lag. `max_size` and
-- `remaining_capacity` describe the queue. Both are null if the queue has no limit.
create view queue_depths as
select
    t.name as tenant,
    q.name as queue,
    g.name as "group",
    m.partitions,
    m.messages,
    iif(g.id is null, m.messages, coalesce(l.lag, 0)) as lag,
    coalesce(l.lagging, 0) as lagging_partitions,
    coalesce(l.leased, 0) as leased,
    strftime('%Y-%m-%dT%H:%M:%S', l.oldest_at / 1000000, 'unixepoch') || printf('.%06dZ', l.oldest_at % 1000000) as oldest_at,
    (select count(*) from dead_letters d where d.queue_id = q.id and d.group_id = g.id and d.replayed_at is null) as dead_letters,
    q.max_size,
    max(0, q.max_size - q.depth) as remaining_capacity
from (select *, nullif(json_extract(options, '$.max_size'), 0) as max_size from queues) q
join tenants t on t.id = q.tenant_id
join (
    select x.id, count(p.id) as partitions, coalesce(sum(p.head - p.start - (select count(*) from skips s
        where s.partition_id = p.id and s.group_id = 0 and s.position >= p.start)), 0) as messages
    from queues x left join partitions p on p.queue_id = x.id
    group by x.id
) m on m.id = q.id
left join groups g on g.queue_id = q.id
left join (
    select x.group_id, sum(x.lag) as lag, sum(x.lag > 0) as lagging, sum(x.leased) as leased, min(x.oldest_at) as oldest_at
    from lanes x
    group by x.group_id
) l on l.group_id = g.id;

-- Every live lease, by lane. `position`: its first unfinished message. A lane of an unordered queue has many leases, of which
-- only the end is stored: `leased_at` and `seconds_held` are null.
create view active_leases as
select
    t.name as tenant,
    q.name as queue,
    g.name as "group",
    p.name as partition,
    lower(hex(x.lease)) as lease,
    x.position,
    x.messages,
    strftime('%Y-%m-%dT%H:%M:%S', x.leased_at / 1000000, 'unixepoch') || printf('.%06dZ', x.leased_at % 1000000) as leased_at,
    strftime('%Y-%m-%dT%H:%M:%S', x.expires_at / 1000000, 'unixepoch') || printf('.%06dZ', x.expires_at % 1000000) as expires_at,
    max(0.0, (julianday('now') - 2440587.5) * 86400 - x.leased_at / 1e6) as seconds_held,
    max(0.0, x.expires_at / 1e6 - (julianday('now') - 2440587.5) * 86400) as seconds_remaining
from (
    select k.partition_id, k.group_id, k.lease, k.committed as position, k.lease_end - k.committed as messages, k.leased_at,
        k.ready_at as expires_at
    from cursors k
    where k.lease is not null and k.ready_at > (julianday('now') - 2440587.5) * 86400000000
    union all
    select u.partition_id, u.group_id, u.token, min(u.first_pos), sum(u.n), null, min(u.ends_at)
    from (
        select c.partition_id, c.group_id, c.token, c.first_pos, c.upto - c.first_pos as n, c.ends_at from claims c
        union all
        select f.partition_id, f.group_id, f.token, f.position, 1, f.due_at from failures f where f.token is not null
    ) u
    where u.ends_at > (julianday('now') - 2440587.5) * 86400000000
    group by u.partition_id, u.group_id, u.token
) x
join partitions p on p.id = x.partition_id
join groups g on g.id = x.group_id
join queues q on q.id = p.queue_id
join tenants t on t.id = q.tenant_id;

-- The contents of every partition. `share`: its share of the messages of the queue, from 0 to 1. `bytes`: size of stored
-- messages, including deleted ones that are not removed yet. `lag`: lag of the group that is furthest behind. `leases`: groups
-- whose consumers read it now.
create view partition_utilisation as
with counted as (
    select p.id, p.queue_id, p.head - p.start - (select count(*) from skips s
        where s.partition_id = p.id and s.group_id = 0 and s.position >= p.start) as messages
    from partitions p
)
select
    t.name as tenant,
    q.name as queue,
    p.name as partition,
    h.messages,
    coalesce(h.messages * 1.0 / nullif(sum(h.messages) over (partition by q.id), 0), 0.0) as share,
    (select coalesce(sum(length(s.body)), 0) from segments s where s.partition_id = p.id) as bytes,
    coalesce(l.lag, h.messages) as lag,
    coalesce(l.leases, 0) as leases,
    strftime('%Y-%m-%dT%H:%M:%S', p.created_at / 1000000, 'unixepoch') || printf('.%06dZ', p.created_at % 1000000) as created_at,
    iif(p.head > 0, strftime('%Y-%m-%dT%H:%M:%S', p.last_at / 1000000, 'unixepoch') || printf('.%06dZ', p.last_at % 1000000), null) as last_push_at
from partitions p
join counted h on h.id = p.id
join queues q on q.id = p.queue_id
join tenants t on t.id = q.tenant_id
left join (
    select x.partition_id, max(x.lag) as lag, sum(x.leased > 0) as leases from lanes x group by x.partition_id
) l on l.partition_id = p.id;

-- Lanes with messages that do not advance, with the reason: paused; parked or blocked until resumed; a message that is retried;
-- an expired lease; or unread, if it was ready for a minute and not popped.
create view stuck_lanes as
with looked_at as (
    select l.*, f.attempts, f.error, f.first_failed_at,
        case when l.stopped is not null then l.stopped
            when k.lease is not null and k.ready_at <= (julianday('now') - 2440587.5) * 86400000000 then 'lease expired'
            when f.attempts > 0 and k.claimed = 0 then 'retrying'
            when max(k.ready_at, l.oldest_at) < (julianday('now') - 2440587.5) * 86400000000 - 60000000 then 'unread'
        end as reason
    from lanes l
    join cursors k on k.partition_id = l.partition_id and k.group_id = l.group_id
    left join failures f on f.partition_id = l.partition_id and f.group_id = l.group_id and f.position = l.position
    where l.lag > 0
),
dated as (
    select *, case reason when 'paused' then paused_at when 'lease expired' then ready_at
        when 'unread' then oldest_at else coalesce(first_failed_at, oldest_at) end as from_at
    from looked_at
    where reason is not null
)
select tenant, queue, "group", partition, reason,
    strftime('%Y-%m-%dT%H:%M:%S', from_at / 1000000, 'unixepoch') || printf('.%06dZ', from_at % 1000000) as since,
    lag, position, attempts, error
from dated;

-- Deletions by retention, by partition, hour and rule. `unread`: messages that some group had not finished. Deleted partitions
-- still have their names here.
create view retention_history as
select
    t.name as tenant,
    q.name as queue,
    h.partition_name as partition,
    strftime('%Y-%m-%dT%H:%M:%S', h.at / 1000000, 'unixepoch') || printf('.%06dZ', h.at % 1000000) as at,
    h.rule,
    h.messages,
    h.unread
from retention_hours h
join queues q on q.id = h.queue_id
join tenants t on t.id = q.tenant_id;
