-- part: entry
e.number, e.at, e.tenant, e.caller, e.action, e.target, e.outcome, e.source, e.began, e.hash, e.previous

-- name: head
select number, hash, :now from audit_head

-- name: end
select number from audit_entries where began = :began

-- name: add
insert into audit_entries (number, at, tenant, caller, action, target, outcome, source, began, hash, previous)
values (:number, :at, :tenant, :caller, :action, :target, :outcome, :source, :began, :hash, :previous)

-- name: set_head
update audit_head set number = :number, hash = :hash

-- name: list
select {entry}, o.outcome, o.at from audit_entries e
left join audit_entries o on o.began = e.number
where e.number < :before and e.began is null and (:tenant is null or e.tenant = :tenant)
order by e.number desc limit :limit

-- name: after
select {entry} from audit_entries e where e.number > :number order by e.number limit :limit

-- name: forget
with oldest as (select number, at from audit_entries order by number limit :limit + 1)
delete from audit_entries where number < coalesce(
    (select min(number) - 1 from oldest where at >= :now - :seconds * 1000000), (select max(number) from oldest))
returning number
