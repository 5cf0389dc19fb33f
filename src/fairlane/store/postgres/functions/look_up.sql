-- Which of these ids are stored in a partition whose row the caller holds. A UUIDv7 that was at most a minute old
-- when it was pushed lies in a segment written in the minute after its time; all other ids lie in message_keys. What went
-- before its window had passed is looked for after the segments: one that goes meanwhile is found there.
CREATE OR REPLACE FUNCTION fairlane.look_up(
    p_shard int, p_partition bigint, p_keys bigint[], p_id_times bigint[],
    p_newest bigint, p_keyed bigint, p_now timestamptz, p_window int
) RETURNS TABLE (item int, pos bigint, head bytea, message_id text, transaction_id text)
LANGUAGE plpgsql AS $$
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
        CROSS JOIN LATERAL fairlane.key_of(p_shard, p_partition, g.key) k
        WHERE k.created_at >= v_forgotten;
    END IF;

    FOR s IN
        SELECT x.first_pos, x.created_at, x.keys FROM fairlane.segments x
        WHERE x.shard = p_shard AND x.partition_id = p_partition AND v_keys IS NOT NULL ORDER BY x.first_pos DESC
    LOOP
        EXIT WHEN s.created_at < greatest(v_forgotten, to_timestamp(v_since / 1000.0));
        CONTINUE WHEN NOT s.keys && v_keys;
        RETURN QUERY SELECT f.item, f.pos, f.head, NULL, NULL
                     FROM fairlane.matches(p_shard, p_partition, s.first_pos, p_keys) f;
    END LOOP;
    IF v_keys IS NOT NULL THEN
        RETURN QUERY SELECT f.item, f.pos, NULL::bytea, f.message_id, f.transaction_id
                     FROM fairlane.deleted_matches(p_shard, p_partition, greatest(v_forgotten, to_timestamp(v_since / 1000.0)),
                                                   'infinity', p_keys) f;
    END IF;

    FOR m IN
        SELECT g.i::int, g.key, to_timestamp(g.id_at / 1000.0) AS id_at FROM unnest(p_keys, p_id_times) WITH ORDINALITY g(key, id_at, i)
        WHERE g.id_at BETWEEN 0 AND v_minute_ago - 1 AND g.id_at <= p_newest
          AND to_timestamp(g.id_at / 1000.0) + interval '61 s' >= v_forgotten
    LOOP
        FOR s IN
            SELECT x.first_pos, x.created_at, x.keys FROM fairlane.segments x
            WHERE x.shard = p_shard AND x.partition_id = p_partition
              AND x.first_pos >= fairlane.position_at(p_shard, p_partition, m.id_at) ORDER BY x.first_pos
        LOOP
            EXIT WHEN s.created_at > m.id_at + interval '61 s';
            CONTINUE WHEN m.key <> ALL (s.keys) OR s.created_at < v_forgotten;
            RETURN QUERY SELECT m.i, f.pos, f.head, NULL, NULL
                         FROM fairlane.matches(p_shard, p_partition, s.first_pos, ARRAY[m.key]) f;
        END LOOP;
        RETURN QUERY SELECT m.i, f.pos, NULL::bytea, f.message_id, f.transaction_id
                     FROM fairlane.deleted_matches(p_shard, p_partition, greatest(v_forgotten, m.id_at), m.id_at + interval '61 s',
                                                   ARRAY[m.key]) f;
    END LOOP;
END $$;

-- The row of one id. The limit keeps it a look at the index: of a join, a plan may read every id that the partition knows.
CREATE OR REPLACE FUNCTION fairlane.key_of(p_shard int, p_partition bigint, p_key bigint)
RETURNS SETOF fairlane.message_keys
LANGUAGE sql STABLE AS $$
    SELECT k.* FROM fairlane.message_keys k WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.key = p_key LIMIT 1;
$$;

-- The messages of one segment that have one of these keys, each with the beginning of its stored form.
CREATE OR REPLACE FUNCTION fairlane.matches(
    p_shard int, p_partition bigint, p_first bigint, p_keys bigint[]
) RETURNS TABLE (item int, pos bigint, head bytea)
LANGUAGE sql AS $$
    SELECT g.i::int, p_first + k.i - 1, substring(s.body FROM coalesce(s.ends[k.i - 1], 0) + 1 FOR 2200)
    FROM fairlane.segments s
    CROSS JOIN LATERAL unnest(s.keys) WITH ORDINALITY k(key, i)
    JOIN unnest(p_keys) WITH ORDINALITY g(key, i) ON g.key = k.key
    WHERE s.shard = p_shard AND s.partition_id = p_partition AND s.first_pos = p_first;
$$;
