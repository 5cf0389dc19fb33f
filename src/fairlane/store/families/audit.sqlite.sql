-- part: entry
e.number, e.at, e.tenant, e.caller, e.action, e.target, e.outcome, e.source, e.began, e.hash

-- name: head
select number, hash, :now from audit_head

-- name: end
select number from audit_entries where began = :began

-- name: add
insert into audit_entries (number, at, tenant, caller, action, target, outcome, source, began, hash)
values (:number, :at, :tenant, :caller, :action, :target, :outcome, :source, :began, :hash)

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
delete from audit_entries
where number in (select number from audit_entries order by number limit :limit) and at < :now - :seconds * 1000000
returning number
