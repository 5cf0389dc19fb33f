-- Specs that were applied, every version of each.
CREATE TABLE fairlane.specs (
    tenant text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    app text COLLATE "C" NOT NULL,
    hash text NOT NULL,
    applied_by text NOT NULL,
    applied_at timestamptz NOT NULL,
    source text NOT NULL,
    document text NOT NULL,
    PRIMARY KEY (tenant, version)
);
-- in_force and versions: the latest of an app.
CREATE INDEX specs_app ON fairlane.specs (tenant, app, version);
