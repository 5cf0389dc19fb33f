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

-- A statement has one snapshot: what a rival committed while we waited for its locks is seen by the next statement
-- only. So the locks are a statement of their own, and a function makes both one round trip.
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

CREATE FUNCTION push_dedup(targets integer[], ids uuid[], payloads bytea[])
RETURNS TABLE (stored_lane integer, stored_position bigint, known boolean)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM lanes AS l WHERE l.id = ANY (targets) ORDER BY l.id FOR UPDATE;
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.lane, i.id, i.payload, m.position AS first
        FROM unnest(targets, ids, payloads) AS i (lane, id, payload)
        LEFT JOIN messages AS m ON m.lane = i.lane AND m.transaction_id = i.id
    ), taken AS (
        UPDATE lanes AS l SET head = l.head + 1 FROM item AS i WHERE l.id = i.lane AND i.first IS NULL
        RETURNING l.id, l.head - 1 AS position
    ), stored AS (
        INSERT INTO messages (lane, position, transaction_id, payload)
        SELECT i.lane, t.position, i.id, i.payload FROM item AS i JOIN taken AS t ON t.id = i.lane
    )
    SELECT i.lane, coalesce(i.first, t.position), i.first IS NOT NULL
    FROM item AS i LEFT JOIN taken AS t ON t.id = i.lane;
END $$;

CREATE TABLE jobs (id bigint PRIMARY KEY, status smallint NOT NULL DEFAULT 0, payload bytea NOT NULL);

-- Finds the next waiting rows.
CREATE INDEX jobs_waiting ON jobs (id) WHERE status = 0;
