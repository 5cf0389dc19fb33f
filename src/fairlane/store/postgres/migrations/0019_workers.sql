-- Workers that told of themselves, each with what it said last.
CREATE TABLE fairlane.workers (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    facts text NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);
