-- Sources: how far the records of somebody's API were read, and who reads them.
CREATE TABLE fairlane.sources (
    id bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision text NOT NULL DEFAULT '',
    cursor text,
    token bigint NOT NULL DEFAULT 1,
    leased_until timestamptz,
    created_at timestamptz NOT NULL,
    sweep int NOT NULL DEFAULT 0,
    sweeping boolean NOT NULL DEFAULT false,
    sweep_cursor text,
    swept_at timestamptz,
    committed_at timestamptz,
    records bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name)
);
-- What is known of each record: the hash of its content, and the last sweep that saw it.
CREATE TABLE fairlane.shadow_records (
    source_id bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    hash text NOT NULL,
    sweep int NOT NULL,
    PRIMARY KEY (source_id, key)
);
-- unseen: records that a sweep did not see.
CREATE INDEX shadow_records_sweep ON fairlane.shadow_records (source_id, sweep);
