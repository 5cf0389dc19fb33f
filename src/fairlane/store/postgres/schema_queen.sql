-- Tables of the API of Queen's clients: notes of consumers about messages, and streams.

-- Notes of consumers about a message.
CREATE TABLE fairlane.traces (
    partition_id bigint NOT NULL, transaction_id text NOT NULL, id text NOT NULL,
    created_at timestamptz NOT NULL, group_name text NOT NULL, event_type text NOT NULL, data bytea NOT NULL,
    names text NOT NULL,  -- A JSON array.
    PRIMARY KEY (partition_id, transaction_id, id)
);

-- The names of a note, newest last.
CREATE TABLE fairlane.trace_names (
    tenant_id bigint NOT NULL, name text COLLATE "C" NOT NULL, created_at timestamptz NOT NULL, trace_id text NOT NULL,
    partition_id bigint NOT NULL, transaction_id text NOT NULL, PRIMARY KEY (tenant_id, name, created_at, trace_id)
);
-- Purging a partition and deleting a message: the names of its traces.
CREATE INDEX trace_names_message ON fairlane.trace_names (partition_id, transaction_id);

-- Positions of messages with a traceId.
CREATE TABLE fairlane.traced (
    trace_id uuid NOT NULL, partition_id bigint NOT NULL, position bigint NOT NULL,
    PRIMARY KEY (trace_id, partition_id, position)
);
-- Removes rows of deleted messages of a partition.
CREATE INDEX traced_position ON fairlane.traced (partition_id, position);

-- Registered streams.
CREATE TABLE fairlane.stream_queries (
    id uuid PRIMARY KEY,
    tenant_id bigint NOT NULL, name text NOT NULL, source_queue text NOT NULL, sink_queue text,
    config_hash text NOT NULL, updated_at timestamptz NOT NULL,
    UNIQUE (tenant_id, name)  -- A stream by its name.
);

-- State of a stream in a partition, by key.
CREATE TABLE fairlane.stream_state (
    partition_id bigint NOT NULL, query_id uuid NOT NULL, key text COLLATE "C" NOT NULL,
    window_end double precision, updated_at timestamptz NOT NULL, value bytea NOT NULL,
    PRIMARY KEY (partition_id, query_id, key)
) WITH (fillfactor = 70);
CREATE INDEX stream_state_query ON fairlane.stream_state (query_id);  -- Deletes all state of a query.
