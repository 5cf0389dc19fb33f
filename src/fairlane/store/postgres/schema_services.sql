-- The tables after `schema.sql`: sources, specs, workers, keys, sessions, the audit log, flags and leadership.

-- Sources: the progress of reading an API, and its poller.
CREATE TABLE fairlane.sources (
    tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    revision text NOT NULL DEFAULT '', cursor text, token bigint NOT NULL DEFAULT 1, leased_until timestamptz,
    created_at timestamptz NOT NULL, sweep int NOT NULL DEFAULT 0, sweeping boolean NOT NULL DEFAULT false,
    sweep_cursor text, swept_at timestamptz, committed_at timestamptz, records bigint NOT NULL DEFAULT 0, PRIMARY KEY (tenant, name)
);

-- Known records: the hash of their content, and the last sweep that saw them.
CREATE TABLE fairlane.shadow_records (
    source_id bigint NOT NULL, key text COLLATE "C" NOT NULL,
    hash text NOT NULL, sweep int NOT NULL, PRIMARY KEY (source_id, key)
);
-- unseen: records that a sweep did not see.
CREATE INDEX shadow_records_sweep ON fairlane.shadow_records (source_id, sweep);

-- The content of each record in its last event, and the partition of its events. Separate from the rows that sweeps update.
CREATE TABLE fairlane.shadow_copies (
    source_id bigint NOT NULL, key text COLLATE "C" NOT NULL,
    partition text NOT NULL, data bytea NOT NULL, PRIMARY KEY (source_id, key)
);

-- Applied specs, with all versions.
CREATE TABLE fairlane.specs (
    tenant text COLLATE "C" NOT NULL, version bigint NOT NULL,
    app text COLLATE "C" NOT NULL, hash text NOT NULL, applied_by text NOT NULL, applied_at timestamptz NOT NULL,
    source text NOT NULL, document text NOT NULL, PRIMARY KEY (tenant, version)
);
CREATE INDEX specs_app ON fairlane.specs (tenant, app, version);  -- in_force and versions: the latest of an app.

-- Queues declared by the specs in force. A queue is always created with these options.
CREATE TABLE fairlane.declared_queues (
    tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, app text COLLATE "C" NOT NULL, options jsonb NOT NULL,
    mapped boolean NOT NULL,  -- True if its messages become commands.
    PRIMARY KEY (tenant, name)
);

-- Effects of handlers, so that another attempt does not repeat them.
CREATE TABLE fairlane.effects (
    tenant text COLLATE "C" NOT NULL, partition_id bigint NOT NULL, key text COLLATE "C" NOT NULL,
    value bytea NOT NULL, kept_until timestamptz NOT NULL, PRIMARY KEY (tenant, partition_id, key)
);
CREATE INDEX effects_kept_until ON fairlane.effects (kept_until);  -- keep: expired effects.

-- Fan-ins: groups of messages, their parts, after whose ends a callback is pushed.
CREATE TABLE fairlane.fan_ins (
    tenant text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
    total int NOT NULL, group_name text NOT NULL,
    queue text NOT NULL, callback bytea NOT NULL,  -- The message to push, as JSON, and its queue.
    created_at timestamptz NOT NULL,
    ended_at timestamptz,  -- When the callback was pushed.
    error text,  -- Why it could not be pushed.
    PRIMARY KEY (tenant, id)
);
CREATE INDEX fan_ins_open ON fairlane.fan_ins (created_at) WHERE ended_at IS NULL;  -- ready: fan-ins without their callback.
CREATE INDEX fan_ins_ended ON fairlane.fan_ins (ended_at) WHERE ended_at IS NOT NULL;  -- forget: fan-ins that ended long ago.

-- Parts of fan-ins, each a message as one group sees it.
CREATE TABLE fairlane.fan_in_parts (
    tenant text COLLATE "C" NOT NULL, fan_in text COLLATE "C" NOT NULL, part int NOT NULL,
    queue_id bigint NOT NULL, partition_id bigint NOT NULL, position bigint NOT NULL, group_name text NOT NULL,
    queue text NOT NULL, partition text NOT NULL, transaction_id text NOT NULL,
    status text, ended_at timestamptz,  -- NULL until the end was noted.
    error text, result bytea,
    PRIMARY KEY (tenant, fan_in, part)
);
CREATE INDEX fan_in_parts_open ON fairlane.fan_in_parts (partition_id, position) WHERE status IS NULL;  -- settle: open parts of a lane.
CREATE INDEX fan_in_parts_left ON fairlane.fan_in_parts (tenant, fan_in) WHERE status IS NULL;  -- ready: fan-ins with open parts.

-- Workers with their latest report.
CREATE TABLE fairlane.workers (
    tenant text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
    facts text NOT NULL, seen_at timestamptz NOT NULL, PRIMARY KEY (tenant, id)
);

-- Data keys of encrypted queues, each sealed by a key of the operator.
CREATE TABLE fairlane.data_keys (
    id bytea PRIMARY KEY, queue_id bigint NOT NULL, kek text NOT NULL, wrapped bytea NOT NULL, created_at timestamptz NOT NULL
);
CREATE INDEX data_keys_queue ON fairlane.data_keys (queue_id);  -- All keys of a queue, to replay into it or delete it.

-- API keys. Only the SHA-256 of a secret is stored.
CREATE TABLE fairlane.api_keys (
    id text PRIMARY KEY, tenant text NOT NULL, name text NOT NULL, role text, scopes text NOT NULL,
    hash bytea NOT NULL, old_hash bytea, old_until timestamptz,
    created_at timestamptz NOT NULL, created_by text NOT NULL, expires_at timestamptz, used_at timestamptz, revoked_at timestamptz
);
CREATE UNIQUE INDEX api_keys_name ON fairlane.api_keys (tenant, name) WHERE revoked_at IS NULL;  -- The name of a revoked key can be used again.

-- Login sessions. `hash` is the hash of the id in the cookie, `key_hash` of the key used to log in.
CREATE TABLE fairlane.sessions (
    hash bytea PRIMARY KEY, tenant text NOT NULL, owner text NOT NULL, key_hash bytea, caller text,
    created_at timestamptz NOT NULL, expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_owner ON fairlane.sessions (tenant, owner, created_at);  -- The oldest sessions of an owner.

-- The audit log. Entries never change, and only the oldest are deleted. `hash` covers the entry and the hash of the previous one,
-- which is `previous`.
CREATE TABLE fairlane.audit_entries (
    number bigint PRIMARY KEY, at timestamptz NOT NULL, tenant text NOT NULL, caller text NOT NULL, action text NOT NULL,
    target text NOT NULL, outcome text NOT NULL, source text NOT NULL, began bigint, hash bytea NOT NULL, previous bytea NOT NULL
);
CREATE UNIQUE INDEX audit_entries_began ON fairlane.audit_entries (began) WHERE began IS NOT NULL;  -- The entry that ended an action, by the entry that began it.
-- The last entry, the only row, so that entries removed from the end are noticed. It is locked to add entries.
CREATE TABLE fairlane.audit_head (one boolean PRIMARY KEY DEFAULT true CHECK (one), number bigint NOT NULL, hash bytea NOT NULL);
INSERT INTO fairlane.audit_head (number, hash) VALUES (0, '');

-- Flags that operators set for all brokers.
CREATE TABLE fairlane.flags (name text PRIMARY KEY, enabled boolean NOT NULL, changed_at timestamptz NOT NULL);

-- Snoozed findings. A snooze with a severity ends early if the finding gets worse than this severity and count.
CREATE TABLE fairlane.snoozes (
    tenant text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL, caller text NOT NULL, severity text, count bigint, PRIMARY KEY (tenant, key)
);

-- Leaders of services that run on one broker at a time. A token identifies one term of leadership, and is never reused.
CREATE TABLE fairlane.leadership (
    name text PRIMARY KEY, token bigint NOT NULL, leads_until timestamptz NOT NULL, rests_until timestamptz NOT NULL
);

-- Staged messages: enqueued by other programs in their own transactions, until a broker moves them to their partitions. Rows are
-- inserted and deleted, never updated. A bucket holds some partitions of a queue, and is moved in the order of the ids.
CREATE TABLE fairlane.staged (
    tenant_id bigint NOT NULL, queue text COLLATE "C" NOT NULL, bucket smallint NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY, created_at timestamptz NOT NULL,
    partition_name text NOT NULL, transaction_id text NOT NULL,
    given boolean NOT NULL,  -- Whether the program named the transactionId, so that it may be a duplicate.
    type text, headers text, deliver_at timestamptz, priority int, max_attempts int, payload text NOT NULL,
    PRIMARY KEY (tenant_id, queue, bucket, id)
) WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE fairlane.staged ALTER payload SET STORAGE EXTERNAL;

-- Roles that may enqueue and complete messages in their own transactions, by queue. An empty queue stands for all of the tenant.
CREATE TABLE fairlane.enqueue_grants (
    role_name text COLLATE "C" NOT NULL, tenant text COLLATE "C" NOT NULL, queue text COLLATE "C" NOT NULL,
    tenant_id bigint NOT NULL,
    sealed boolean NOT NULL,  -- Whether `sealed_queues` has any pattern.
    PRIMARY KEY (role_name, tenant, queue)
);

-- Patterns of the queues that the brokers always encrypt, as regular expressions.
CREATE TABLE fairlane.sealed_queues (pattern text PRIMARY KEY);
