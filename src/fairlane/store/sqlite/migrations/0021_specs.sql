-- Specs that were applied, every version of each.
create table specs (
    tenant text not null,
    version integer not null,
    app text not null,
    hash text not null,
    applied_by text not null,
    applied_at integer not null,
    source text not null,
    document text not null,
    primary key (tenant, version)
) strict;

-- in_force and versions: the latest of an app.
create index specs_app on specs (tenant, app, version);
