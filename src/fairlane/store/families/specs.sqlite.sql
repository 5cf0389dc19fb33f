-- name: record
insert into specs
select :tenant, :version, :app, :hash, :applied_by, :now, :source, :document
where :version = 1 + (select coalesce(max(version), 0) from specs where tenant = :tenant)
returning applied_at

-- name: declare
delete from declared_queues where tenant = :tenant and app = :app;
insert into declared_queues
select :tenant, n.value, :app, :options ->> n.key, :mapped ->> n.key from json_each(:names) n

-- name: get
select version, app, hash, applied_by, applied_at, source, document from specs
where tenant = :tenant and version = :version

-- name: in_force
select version, app, hash, applied_by, applied_at, source, document from specs
where tenant = :tenant and version in (select max(version) from specs where tenant = :tenant group by app)
order by app

-- name: heads
select tenant, max(version) from specs group by tenant, app

-- name: versions
select version, app, hash, applied_by, applied_at from specs
where tenant = :tenant and (:apps is null or app in (select value from json_each(:apps)))
    and (:before is null or version < :before)
order by version desc limit :limit
