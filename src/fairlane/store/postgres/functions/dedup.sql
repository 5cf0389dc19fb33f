-- Known ids. Ids outlive their messages: deleted segments leave their ids for the window of their queue.

-- Returns which of these ids are stored in a partition whose row the caller has locked. A UUIDv7 that was at most a minute old
-- when it was pushed is in a segment written in the minute after its time. All other ids are in message_keys. Deleted ids are
-- searched after the segments, so that an id that is deleted meanwhile is found there.
CREATE OR REPLACE FUNCTION fairlane.look_up(
    p_partition bigint, p_keys bigint[], p_id_times bigint[],
    p_newest bigint, p_keyed bigint, p_now timestamptz, p_window int
) RETURNS TABLE (item int, pos bigint, head bytea, message_id text, transaction_id text)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_minute_ago bigint := floor(extract(epoch FROM p_now) * 1000) - 60000;
    v_forgotten timestamptz := p_now - make_interval(secs => p_window);
    v_keys bigint[];
    v_since bigint;
    v_oldest bigint;
    m record;
    s record;
BEGIN
    SELECT array_agg(g.key) FILTER (WHERE g.id_at >= v_minute_ago AND g.id_at <= p_newest),
           min(g.id_at) FILTER (WHERE g.id_at >= v_minute_ago AND g.id_at <= p_newest),
           min(g.id_at)
    INTO v_keys, v_since, v_oldest
    FROM unnest(p_keys, p_id_times) g(key, id_at);

    IF v_oldest < v_minute_ago OR v_oldest <= p_keyed THEN
        RETURN QUERY
        SELECT g.i::int, k.position, NULL::bytea, k.message_id, k.transaction_id
        FROM unnest(p_keys) WITH ORDINALITY g(key, i)
        CROSS JOIN LATERAL fairlane.key_of(p_partition, g.key) k
        WHERE k.created_at >= v_forgotten;
    END IF;

    FOR s IN
        SELECT x.first_pos, x.created_at, x.keys FROM fairlane.segments x
        WHERE x.partition_id = p_partition AND v_keys IS NOT NULL ORDER BY x.first_pos DESC
    LOOP
        EXIT WHEN s.created_at < greatest(v_forgotten, to_timestamp(v_since / 1000.0));
        CONTINUE WHEN NOT s.keys && v_keys;
        RETURN QUERY SELECT f.item, f.pos, f.head, NULL, NULL
                     FROM fairlane.matches(p_partition, s.first_pos, p_keys) f;
    END LOOP;
    IF v_keys IS NOT NULL THEN
        RETURN QUERY SELECT f.item, f.pos, NULL::bytea, f.message_id, f.transaction_id
                     FROM fairlane.deleted_matches(p_partition, greatest(v_forgotten, to_timestamp(v_since / 1000.0)),
                                                   'infinity', p_keys) f;
    END IF;

    -- The minutes after ids that are close together are scanned once for all of these ids.
    FOR m IN
        SELECT array_agg(w.i) AS items, array_agg(w.key) AS keys, min(w.id_at) AS since, max(w.id_at) + interval '61 s' AS until
        FROM (SELECT v.*, count(*) FILTER (WHERE v.apart) OVER (ORDER BY v.id_at) AS walk
              FROM (SELECT u.*, u.id_at > lag(u.id_at) OVER (ORDER BY u.id_at) + interval '61 s' AS apart
                    FROM (SELECT g.i::int, g.key, to_timestamp(g.id_at / 1000.0) AS id_at
                          FROM unnest(p_keys, p_id_times) WITH ORDINALITY g(key, id_at, i)
                          WHERE g.id_at BETWEEN 0 AND v_minute_ago - 1 AND g.id_at <= p_newest
                            AND to_timestamp(g.id_at / 1000.0) + interval '61 s' >= v_forgotten) u) v) w
        GROUP BY w.walk
    LOOP
        FOR s IN
            SELECT x.first_pos, x.created_at, x.keys FROM fairlane.segments x
            WHERE x.partition_id = p_partition
              AND x.first_pos >= fairlane.position_at(p_partition, m.since) ORDER BY x.first_pos
        LOOP
            EXIT WHEN s.created_at > m.until;
            CONTINUE WHEN NOT s.keys && m.keys OR s.created_at < v_forgotten;
            RETURN QUERY SELECT m.items[f.item], f.pos, f.head, NULL, NULL
                         FROM fairlane.matches(p_partition, s.first_pos, m.keys) f;
        END LOOP;
        RETURN QUERY SELECT m.items[f.item], f.pos, NULL::bytea, f.message_id, f.transaction_id
                     FROM fairlane.deleted_matches(p_partition, greatest(v_forgotten, m.since), m.until, m.keys) f;
    END LOOP;
END $$;

-- The row of one id. The limit enforces an index lookup: with a join, a plan might read every id of the partition.
CREATE OR REPLACE FUNCTION fairlane.key_of(p_partition bigint, p_key bigint)
RETURNS SETOF fairlane.message_keys
LANGUAGE sql STABLE AS $$
    SELECT k.* FROM fairlane.message_keys k WHERE k.partition_id = p_partition AND k.key = p_key LIMIT 1;
$$;

-- The messages of one segment with one of these keys, each with the beginning of its stored form.
CREATE OR REPLACE FUNCTION fairlane.matches(
    p_partition bigint, p_first bigint, p_keys bigint[]
) RETURNS TABLE (item int, pos bigint, head bytea)
LANGUAGE sql STABLE AS $$
    SELECT g.i::int, p_first + k.i - 1, substring(s.body FROM coalesce(s.ends[k.i - 1], 0) + 1 FOR 2200)
    FROM fairlane.segments s
    CROSS JOIN LATERAL unnest(s.keys) WITH ORDINALITY k(key, i)
    JOIN unnest(p_keys) WITH ORDINALITY g(key, i) ON g.key = k.key
    WHERE s.partition_id = p_partition AND s.first_pos = p_first;
$$;

-- True if an id found at a position still counts: its message was not deleted by hand, nor the partition cleared.
CREATE OR REPLACE FUNCTION fairlane.is_known(p_partition bigint, p_position bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.partition_id = p_partition
                       AND x.position = p_position AND x.group_id = 0)
       AND NOT EXISTS (SELECT 1 FROM fairlane.trims t WHERE t.partition_id = p_partition
                       AND t.cleared > p_position);
$$;

-- The deleted messages of a partition, created between two times, with one of these keys. A row holds messages of up to a second,
-- by the time of its last one.
CREATE OR REPLACE FUNCTION fairlane.deleted_matches(
    p_partition bigint, p_since timestamptz, p_until timestamptz, p_keys bigint[]
) RETURNS TABLE (item int, pos bigint, message_id text, transaction_id text)
LANGUAGE sql STABLE AS $$
    SELECT g.i::int, d.first_pos + k.i - 1, m.id::text, CASE WHEN d.transaction_ids IS NULL THEN m.id ELSE d.transaction_ids[k.i] END::text
    FROM fairlane.deleted_ids d
    CROSS JOIN LATERAL unnest(d.keys) WITH ORDINALITY k(key, i)
    CROSS JOIN LATERAL (SELECT encode(substring(d.message_ids FROM 16 * k.i::int - 15 FOR 16), 'hex')::uuid AS id) m
    JOIN unnest(p_keys) WITH ORDINALITY g(key, i) ON g.key = k.key
    WHERE d.partition_id = p_partition AND d.created_at >= p_since AND d.created_at <= p_until + interval '1 s'
      AND d.keys && p_keys AND (d.transaction_ids IS NULL OR d.transaction_ids[k.i] IS NOT NULL);
$$;

-- The transactionIds of a segment that are UUIDs in canonical form. NULL for the others.
CREATE OR REPLACE FUNCTION fairlane.uuids_in(p_ends int[], p_body bytea) RETURNS uuid[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(CASE WHEN h.quote = '"' AND h.id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN h.id::uuid END)
    FROM (SELECT encode(substring(p_body FROM e.low + 63 FOR 36), 'escape') AS id,
                 encode(substring(p_body FROM e.low + 99 FOR 1), 'escape') AS quote
          FROM unnest(0 || p_ends[: cardinality(p_ends) - 1]) e(low) OFFSET 0) h;
$$;

-- Concatenates arrays, in order.
CREATE OR REPLACE AGGREGATE fairlane.join_arrays(anycompatiblearray) (SFUNC = array_cat, STYPE = anycompatiblearray);

-- Deletes rows of deleted_ids and their rows of message_keys. Most partitions have none. Returns their number.
CREATE OR REPLACE FUNCTION fairlane.forget_deleted_ids(p_ids bigint[], p_created timestamptz[], p_first bigint[]) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_gone bigint;
BEGIN
    WITH gone AS (
        DELETE FROM fairlane.deleted_ids d USING unnest(p_ids, p_created, p_first) u(id, created_at, first_pos)
        WHERE d.partition_id = u.id AND d.created_at = u.created_at AND d.first_pos = u.first_pos
        RETURNING d.partition_id, d.first_pos, d.keys),
    forgotten AS (
        DELETE FROM fairlane.message_keys k
        USING (SELECT g.partition_id, g.first_pos, unnest(g.keys) AS key, cardinality(g.keys) AS n FROM gone g
               WHERE (SELECT true FROM fairlane.message_keys m WHERE m.partition_id = g.partition_id LIMIT 1)) f
        WHERE k.partition_id = f.partition_id AND k.key = f.key
          AND k.position >= f.first_pos AND k.position < f.first_pos + f.n)
    SELECT count(*) INTO v_gone FROM gone;
    RETURN v_gone;
END $$;

-- Deletes up to p_limit rows of deleted_ids whose window has passed, with their results. Returns their number.
CREATE OR REPLACE FUNCTION fairlane.forget_ids(p_limit int, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v record;
    v_gone bigint;
BEGIN
    SELECT array_agg(x.partition_id) AS ids, array_agg(x.created_at) AS created, array_agg(x.first_pos) AS firsts INTO v
    FROM (SELECT d.partition_id, d.created_at, d.first_pos FROM fairlane.deleted_ids d
          WHERE d.forget_at <= t ORDER BY d.forget_at LIMIT p_limit) x;
    IF v.ids IS NULL THEN
        RETURN 0;
    END IF;
    v_gone := fairlane.forget_deleted_ids(v.ids, v.created, v.firsts);
    PERFORM fairlane.trim_records(ARRAY(SELECT DISTINCT i FROM unnest(v.ids) i));
    RETURN v_gone;
END $$;
