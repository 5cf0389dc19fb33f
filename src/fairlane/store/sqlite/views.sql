-- Views for people. They are made anew when this text changes.

-- Every retained message that was not deleted, one row each.
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
    q.name as queue,
    p.name as partition,
    m.position,
    iif(json_valid(m.message), m.message ->> '$.id', null) as id,
    iif(json_valid(m.message), m.message ->> '$.transactionId', null) as transaction_id,
    iif(json_valid(m.message), m.message ->> '$.type', null) as type,
    strftime('%Y-%m-%dT%H:%M:%S', m.created_at / 1000000, 'unixepoch')
        || printf('.%06dZ', m.created_at % 1000000) as created_at,
    iif(json_valid(m.message), m.message -> '$.data', null) as data
from texts m
join partitions p on p.id = m.partition_id and m.position >= p.start
join queues q on q.id = p.queue_id
where not exists (
    select 1 from skips x where x.partition_id = m.partition_id and x.position = m.position and x.group_id = 0);
