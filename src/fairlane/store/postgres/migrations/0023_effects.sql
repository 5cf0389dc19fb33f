-- What handlers did once for a message, so that another attempt need not do it again.
CREATE TABLE fairlane.effects (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    kept_until timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);
-- keep: those whose time is over.
CREATE INDEX effects_kept_until ON fairlane.effects (kept_until);
