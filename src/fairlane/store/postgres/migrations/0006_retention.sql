-- Work that one broker at a time does for all of them. A token names one time of leading, and is never used again.
CREATE TABLE fairlane.services (
    name text PRIMARY KEY,
    token bigint NOT NULL,
    leads_until timestamptz NOT NULL,
    rests_until timestamptz NOT NULL
);

-- `retained` is asked by every push; `ruled` finds the queues that a pass of retention is about.
ALTER TABLE fairlane.queues
    ADD COLUMN retained boolean NOT NULL
        GENERATED ALWAYS AS (coalesce((options ->> 'retention_enabled')::boolean, false)) STORED,
    ADD COLUMN ruled boolean NOT NULL
        GENERATED ALWAYS AS (coalesce((options ->> 'retention_enabled')::boolean, false)
                             OR coalesce((options ->> 'dead_letter_retention_seconds')::bigint, 0) > 0) STORED;
CREATE INDEX queues_ruled ON fairlane.queues (id) WHERE ruled;

-- When retention looks at a partition next. Every partition of a retained queue that holds messages has a row.
CREATE TABLE fairlane.expiries (
    shard int NOT NULL,
    partition_id bigint NOT NULL,
    queue_id bigint NOT NULL,
    due_at timestamptz NOT NULL,
    PRIMARY KEY (shard, partition_id)
) WITH (fillfactor = 70);
-- Retention: the partitions that are due, longest first.
CREATE INDEX expiries_due ON fairlane.expiries (shard, due_at);

-- The rules that the rows of `expiries` were made by. Partitions of a queue whose rules changed get theirs in bounded steps:
-- behind this name in this shard; NULL when all have one.
CREATE TABLE fairlane.retention_rules (
    queue_id bigint PRIMARY KEY,
    rules text NOT NULL,
    seed_shard int,
    seed_after text COLLATE "C" NOT NULL
);

-- What went, by queue, minute and rule.
CREATE TABLE fairlane.retention_history (
    queue_id bigint NOT NULL,
    at timestamptz NOT NULL,
    rule text NOT NULL,
    messages bigint NOT NULL,
    unread bigint NOT NULL,
    PRIMARY KEY (queue_id, at, rule)
);
-- Forgetting history that is too old.
CREATE INDEX retention_history_at ON fairlane.retention_history (at);
