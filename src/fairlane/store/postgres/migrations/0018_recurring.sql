-- Schedules: what is pushed at every tick. Messages that wait for a time of their own are in `scheduled`.
CREATE TABLE fairlane.recurring (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    definition text NOT NULL,
    revision text NOT NULL,
    -- NULL while it is paused.
    next_at timestamptz,
    paused_at timestamptz,
    PRIMARY KEY (tenant, name)
);
-- due and next_in: the first to tick.
CREATE INDEX recurring_next ON fairlane.recurring (next_at) WHERE next_at IS NOT NULL;
