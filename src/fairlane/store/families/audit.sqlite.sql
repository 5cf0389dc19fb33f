-- part: entry
number, at, tenant, caller, action, target, outcome, source, hash

-- name: head
select number, hash, :now from audit_head

-- name: add
insert into audit_entries (number, at, tenant, caller, action, target, outcome, source, hash)
values (:number, :at, :tenant, :caller, :action, :target, :outcome, :source, :hash)

-- name: set_head
update audit_head set number = :number, hash = :hash

-- name: list
select {entry} from audit_entries
where number < :before and (:tenant is null or tenant = :tenant)
order by number desc limit :limit

-- name: after
select {entry} from audit_entries where number > :number order by number limit :limit

-- name: forget
delete from audit_entries
where number in (select number from audit_entries order by number limit :limit) and at < :now - :seconds * 1000000
returning number
