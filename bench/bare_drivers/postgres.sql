CREATE TABLE lanes (id integer PRIMARY KEY, head bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);

CREATE TABLE messages (
    lane integer NOT NULL,
    position bigint NOT NULL,
    transaction_id uuid NOT NULL,
    payload bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (lane, position),
    UNIQUE (lane, transaction_id)
);

-- A statement has one snapshot, so only the next statement sees what others committed while this one waited for locks.
-- The lock is therefore a statement of its own, and a function makes both one round trip.
CREATE FUNCTION push(targets integer[], ids uuid[], payloads bytea[])
RETURNS TABLE (stored_lane integer, stored_position bigint)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM lanes AS l WHERE l.id = ANY (targets) ORDER BY l.id FOR UPDATE;
    RETURN QUERY
    WITH taken AS (
        UPDATE lanes AS l SET head = l.head + 1 WHERE l.id = ANY (targets)
        RETURNING l.id, l.head - 1 AS position
    )
    INSERT INTO messages AS m (lane, position, transaction_id, payload)
    SELECT i.lane, t.position, i.id, i.payload
    FROM unnest(targets, ids, payloads) AS i (lane, id, payload)
    JOIN taken AS t ON t.id = i.lane
    RETURNING m.lane, m.position;
END $$;

CREATE TABLE jobs (id bigint PRIMARY KEY, status smallint NOT NULL DEFAULT 0, payload bytea NOT NULL);

-- Finds the next waiting rows.
CREATE INDEX jobs_waiting ON jobs (id) WHERE status = 0;
