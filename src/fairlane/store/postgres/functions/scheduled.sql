-- Converts microseconds since 1970 to a time.
CREATE OR REPLACE FUNCTION fairlane.at_us(p_us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT timestamptz 'epoch' + p_us * interval '1 microsecond';
$$;

-- Scheduled messages of a partition with one of these keys. A UUIDv7 that was at most a minute old when it was scheduled is in a
-- segment made in the minute after its time. All other ids are in scheduled_keys.
CREATE OR REPLACE FUNCTION fairlane.find_scheduled(p_partition bigint, p_keys bigint[], p_id_times bigint[])
RETURNS TABLE (item int, segment_id uuid, at int, due bigint, head bytea)
LANGUAGE sql STABLE AS $$
    SELECT g.i::int, b.id, k.i::int, m.due[k.i], substring(m.body FROM coalesce(m.ends[k.i - 1], 0) + 1 FOR 2200)
    FROM unnest(p_keys, p_id_times) WITH ORDINALITY g(key, id_at, i)
    CROSS JOIN LATERAL (
        SELECT x.segment_id AS id FROM fairlane.scheduled_keys x
        WHERE x.partition_id = p_partition AND x.key = g.key
        UNION ALL
        SELECT y.id FROM fairlane.scheduled_segments y
        WHERE y.partition_id = p_partition AND g.id_at >= 0
          AND y.created_at BETWEEN to_timestamp(g.id_at / 1000.0) AND to_timestamp(g.id_at / 1000.0) + interval '61 s') f
    JOIN fairlane.scheduled_segments b ON b.id = f.id
    JOIN fairlane.scheduled_messages m ON m.id = f.id
    CROSS JOIN LATERAL unnest(m.keys) WITH ORDINALITY k(key, i)
    WHERE k.key = g.key AND k.i > b.taken;
$$;

-- True if a message is scheduled whose id is p_quoted in its stored form.
CREATE OR REPLACE FUNCTION fairlane.is_scheduled(p_partition bigint, p_keys bigint[], p_id_times bigint[], p_quoted bytea) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM fairlane.find_scheduled(p_partition, p_keys, p_id_times) x
                   WHERE substring(x.head FROM 62 FOR length(p_quoted)) = p_quoted);
$$;

-- Schedules messages. Values per message are flattened: slice i has the elements p_upto[i - 1] + 1 to p_upto[i], in the order of
-- its segments, which p_segment_* describe. Returns one row per slice, or one per duplicate: added (at the time `at`), duplicate,
-- or gone (its partition was deleted).
CREATE OR REPLACE FUNCTION fairlane.add_scheduled(
    p_ids bigint[],
    p_queues bigint[],
    p_names text[],
    p_upto int[],
    p_window int[],
    p_keys bigint[],
    p_id_times bigint[],
    p_given boolean[],             -- empty if none may be a duplicate
    p_due bigint[],                -- microseconds since 1970, or from now on
    p_ends int[],
    p_segment_ids uuid[],
    p_segment_slice int[],
    p_segment_relative boolean[],
    p_segment_first int[],          -- index of its first message in the flat arrays
    p_segment_n int[],
    p_segment_body bytea[],
    p_now timestamptz
) RETURNS TABLE (state text, slice int, item int, at timestamptz, pos bigint, due bigint, head bytea, message_id text,
                 transaction_id text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    t_us bigint;
    t_ms bigint;
    v_stale boolean;
    v_there bigint[];
    v_oldest bigint := (SELECT min(x.id_at) FROM unnest(p_id_times) x(id_at));
    v_look boolean := p_given <> '{}';
    v_skip boolean[] := array_fill(false, ARRAY[cardinality(p_ids)]);
    lo int;
    hi int;
    v record;
    r record;
BEGIN
    IF NOT v_look THEN
        -- Ids that cannot be duplicates need no lookup, unless ids of their time are in doubt: an abandoned call and its retry
        -- may arrive only now.
        v_look := EXISTS (SELECT 1 FROM unnest(p_ids) i(id) CROSS JOIN LATERAL (
                              SELECT p.doubted_until_ms FROM fairlane.partitions p WHERE p.id = i.id LIMIT 1) p
                          WHERE p.doubted_until_ms >= v_oldest);
    END IF;
    IF v_look THEN
        -- Two brokers may get the same id at once.
        PERFORM 1 FROM fairlane.partitions p WHERE p.id = ANY (p_ids) ORDER BY p.id FOR NO KEY UPDATE;
    END IF;
    t := coalesce(p_now, clock_timestamp());
    t_us := (extract(epoch FROM t) * 1000000)::bigint;
    t_ms := t_us / 1000;
    v_stale := t_ms < ANY (p_id_times) OR t_ms - 60000 > ANY (p_id_times);
    v_there := ARRAY(
        -- Each partition by its id, also if the plan was made when there were few partitions.
        SELECT p.id FROM unnest(p_ids, p_queues) u(id, queue_id)
        CROSS JOIN LATERAL (SELECT x.id, x.queue_id FROM fairlane.partitions x WHERE x.id = u.id LIMIT 1) p
        JOIN fairlane.queues q ON q.id = p.queue_id
        WHERE p.queue_id = u.queue_id);
    FOR i IN 1 .. cardinality(p_ids) LOOP
        IF p_ids[i] <> ALL (v_there) THEN
            v_skip[i] := true;
            RETURN QUERY SELECT 'gone', i, 0, t, 0::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text;
            CONTINUE;
        END IF;
        CONTINUE WHEN NOT v_look;
        lo := coalesce(p_upto[i - 1], 0) + 1;
        hi := p_upto[i];
        SELECT p.newest_id_ms, p.keyed_until_ms, p.doubted_until_ms INTO v
        FROM fairlane.partitions p WHERE p.id = p_ids[i];
        CONTINUE WHEN NOT true = ANY (p_given[lo : hi]) AND v.doubted_until_ms < v_oldest;
        FOR r IN
            SELECT f.item, f.pos, NULL::bigint AS due, f.head, f.message_id, f.transaction_id
            FROM fairlane.look_up(p_ids[i], p_keys[lo : hi], p_id_times[lo : hi], v.newest_id_ms, v.keyed_until_ms, t,
                                  p_window[i]) f
            WHERE p_window[i] > 0 AND fairlane.is_known(p_ids[i], f.pos)
            UNION ALL
            SELECT w.item, -1, w.due, w.head, NULL, NULL
            FROM fairlane.find_scheduled(p_ids[i], p_keys[lo : hi], p_id_times[lo : hi]) w
        LOOP
            CONTINUE WHEN NOT coalesce(p_given[lo + r.item - 1], false) AND p_id_times[lo + r.item - 1] > v.doubted_until_ms;
            v_skip[i] := true;
            RETURN QUERY SELECT 'duplicate', i, r.item, t, r.pos, r.due, r.head, r.message_id, r.transaction_id;
        END LOOP;
    END LOOP;

    INSERT INTO fairlane.scheduled_messages (id, due, ends, keys, body)
    SELECT b.id,
           CASE WHEN b.relative THEN ARRAY(SELECT t_us + x.at FROM unnest(p_due[b.f : b.f + b.n - 1]) WITH ORDINALITY x(at, o) ORDER BY x.o)
                ELSE p_due[b.f : b.f + b.n - 1] END,
           p_ends[b.f : b.f + b.n - 1], p_keys[b.f : b.f + b.n - 1], b.body
    FROM unnest(p_segment_ids, p_segment_slice, p_segment_relative, p_segment_first, p_segment_n, p_segment_body)
         b(id, s, relative, f, n, body)
    WHERE NOT v_skip[b.s]
    ON CONFLICT (id) DO NOTHING;  -- a retry waits for the abandoned call, then finds its messages stored

    INSERT INTO fairlane.scheduled_segments (id, partition_id, queue_id, partition_name, created_at, next_at, last_at, n, keyed)
    SELECT b.id, p_ids[b.s], p_queues[b.s], p_names[b.s], t,
           fairlane.at_us(p_due[b.f] + CASE WHEN b.relative THEN t_us ELSE 0 END),
           fairlane.at_us(p_due[b.f + b.n - 1] + CASE WHEN b.relative THEN t_us ELSE 0 END), b.n,
           v_stale AND EXISTS (SELECT 1 FROM unnest(p_id_times[b.f : b.f + b.n - 1]) x(id_at)
                               WHERE x.id_at > t_ms OR x.id_at < t_ms - 60000)
    FROM unnest(p_segment_ids, p_segment_slice, p_segment_relative, p_segment_first, p_segment_n) b(id, s, relative, f, n)
    WHERE NOT v_skip[b.s]
    ON CONFLICT (id) DO NOTHING;

    IF v_stale THEN
        INSERT INTO fairlane.scheduled_keys (partition_id, key, segment_id)
        SELECT p_ids[b.s], p_keys[j], b.id
        FROM unnest(p_segment_ids, p_segment_slice, p_segment_first, p_segment_n) b(id, s, f, n)
        CROSS JOIN LATERAL generate_series(b.f, b.f + b.n - 1) j
        WHERE NOT v_skip[b.s] AND (p_id_times[j] > t_ms OR p_id_times[j] < t_ms - 60000)
        ON CONFLICT (partition_id, key) DO NOTHING;
    END IF;

    RETURN QUERY SELECT 'added', s.i::int, 0, t, 0::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text
                 FROM unnest(v_skip) WITH ORDINALITY s(skip, i) WHERE NOT s.skip;
END $$;

-- Locks segments with up to p_limit due messages, oldest first, until the end of the transaction. A last row without an id has
-- the time in `next_due` from which there may be more.
CREATE OR REPLACE FUNCTION fairlane.due_scheduled(p_limit int, p_bytes int, p_now timestamptz)
RETURNS TABLE (id uuid, partition_id bigint, queue_id bigint, partition_name text, n int, taken int, due bigint[], next_due bigint,
               keys bigint[], ends int[], body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    t_us bigint := (extract(epoch FROM t) * 1000000)::bigint;
    v_count int := 0;
    v_bytes bigint := 0;
    v_upto int;
    v_low int;
    v_cut bigint;
    b record;
    m record;
BEGIN
    FOR b IN SELECT x.id, x.partition_id, x.queue_id, x.partition_name::text AS partition_name, x.n, x.taken, x.next_at
             FROM fairlane.scheduled_segments x WHERE x.next_at <= t
             ORDER BY x.next_at, x.id LIMIT p_limit + 1 FOR UPDATE SKIP LOCKED
    LOOP
        IF v_count >= p_limit OR v_bytes >= p_bytes THEN
            v_cut := least(v_cut, (extract(epoch FROM b.next_at) * 1000000)::bigint);
            EXIT;
        END IF;
        SELECT x.due, x.ends, x.keys INTO m FROM fairlane.scheduled_messages x WHERE x.id = b.id;
        v_upto := b.taken;
        WHILE v_upto < b.n AND m.due[v_upto + 1] <= t_us AND v_upto - b.taken < p_limit - v_count LOOP
            v_upto := v_upto + 1;
        END LOOP;
        v_low := coalesce(m.ends[b.taken], 0);
        v_count := v_count + v_upto - b.taken;
        v_bytes := v_bytes + m.ends[v_upto] - v_low;
        v_cut := CASE WHEN v_count >= p_limit THEN m.due[v_upto + 1] END;
        RETURN QUERY SELECT b.id, b.partition_id, b.queue_id, b.partition_name, b.n, b.taken, m.due[b.taken + 1 : v_upto],
                            m.due[v_upto + 1], m.keys[b.taken + 1 : v_upto],
                            ARRAY(SELECT e.at - v_low FROM unnest(m.ends[b.taken + 1 : v_upto]) WITH ORDINALITY e(at, i) ORDER BY e.i),
                            substring(x.body FROM v_low + 1 FOR m.ends[v_upto] - v_low)
                     FROM fairlane.scheduled_messages x WHERE x.id = b.id;
    END LOOP;
    IF v_cut IS NOT NULL THEN
        RETURN QUERY SELECT NULL::uuid, 0::bigint, 0::bigint, NULL::text, 0, 0, NULL::bigint[], v_cut, NULL::bigint[], NULL::int[], NULL::bytea;
    END IF;
END $$;

-- Removes the message at p_at from a segment that the caller has locked.
CREATE OR REPLACE FUNCTION fairlane.take_out_scheduled(p_id uuid, p_at int) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    b record;
    m record;
    v_low int;
    v_due bigint[];
BEGIN
    SELECT x.partition_id, x.n, x.taken, x.keyed INTO b FROM fairlane.scheduled_segments x WHERE x.id = p_id;
    SELECT x.due, x.ends, x.keys, x.body INTO m FROM fairlane.scheduled_messages x WHERE x.id = p_id;
    IF b.keyed THEN
        DELETE FROM fairlane.scheduled_keys k
        WHERE k.partition_id = b.partition_id AND k.key = m.keys[p_at] AND k.segment_id = p_id;
    END IF;
    IF b.taken + 1 = b.n THEN
        DELETE FROM fairlane.scheduled_messages x WHERE x.id = p_id;
        DELETE FROM fairlane.scheduled_segments x WHERE x.id = p_id;
        RETURN;
    END IF;
    v_low := coalesce(m.ends[p_at - 1], 0);
    v_due := m.due[: p_at - 1] || m.due[p_at + 1 :];
    UPDATE fairlane.scheduled_messages x
    SET due = v_due, keys = m.keys[: p_at - 1] || m.keys[p_at + 1 :],
        ends = m.ends[: p_at - 1] || ARRAY(SELECT e.at - (m.ends[p_at] - v_low) FROM unnest(m.ends[p_at + 1 :]) WITH ORDINALITY e(at, i)
                                           ORDER BY e.i),
        body = substring(m.body FROM 1 FOR v_low) || substring(m.body FROM m.ends[p_at] + 1)
    WHERE x.id = p_id;
    UPDATE fairlane.scheduled_segments x
    SET n = b.n - 1, last_at = fairlane.at_us(v_due[b.n - 1]),
        next_at = CASE WHEN p_at = b.taken + 1 THEN fairlane.at_us(v_due[p_at]) ELSE x.next_at END
    WHERE x.id = p_id;
END $$;

-- Cancels a scheduled message, whose id is p_quoted in its stored form, or with p_move reschedules it to p_due, NULL for
-- p_delay_ms from now, in its own segment p_new. Returns its new or old time in microseconds, NULL if it is not scheduled.
CREATE OR REPLACE FUNCTION fairlane.change_scheduled(
    p_partition bigint, p_keys bigint[], p_id_ms bigint, p_quoted bytea, p_move boolean, p_due bigint, p_delay_ms bigint,
    p_new uuid, p_now timestamptz
) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t_us bigint;
    v_ids uuid[];
    w record;
    b record;
    v_key bigint;
    v_message bytea;
BEGIN
    v_ids := ARRAY(SELECT x.segment_id FROM fairlane.find_scheduled(p_partition, p_keys, array_fill(p_id_ms, ARRAY[cardinality(p_keys)])) x);
    PERFORM 1 FROM fairlane.scheduled_segments x WHERE x.id = ANY (v_ids) ORDER BY x.id FOR UPDATE;
    -- Under the locks: it may have become due meanwhile.
    SELECT x.segment_id, x.at, x.due INTO w
    FROM fairlane.find_scheduled(p_partition, p_keys, array_fill(p_id_ms, ARRAY[cardinality(p_keys)])) x
    WHERE substring(x.head FROM 62 FOR length(p_quoted)) = p_quoted AND x.segment_id = ANY (v_ids) LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT x.queue_id, x.partition_name, x.created_at, x.keyed INTO b FROM fairlane.scheduled_segments x WHERE x.id = w.segment_id;
    SELECT m.keys[w.at], substring(m.body FROM coalesce(m.ends[w.at - 1], 0) + 1 FOR m.ends[w.at] - coalesce(m.ends[w.at - 1], 0))
    INTO v_key, v_message FROM fairlane.scheduled_messages m WHERE m.id = w.segment_id;
    PERFORM fairlane.take_out_scheduled(w.segment_id, w.at);
    IF NOT p_move THEN
        RETURN w.due;
    END IF;
    t_us := (extract(epoch FROM coalesce(p_now, clock_timestamp())) * 1000000)::bigint;
    t_us := coalesce(p_due, t_us + p_delay_ms * 1000);
    INSERT INTO fairlane.scheduled_segments (id, partition_id, queue_id, partition_name, created_at, next_at, last_at, n, keyed)
    VALUES (p_new, p_partition, b.queue_id, b.partition_name, b.created_at, fairlane.at_us(t_us), fairlane.at_us(t_us), 1, b.keyed);
    INSERT INTO fairlane.scheduled_messages (id, due, ends, keys, body)
    VALUES (p_new, ARRAY[t_us], ARRAY[length(v_message)], ARRAY[v_key], v_message);
    IF b.keyed THEN
        INSERT INTO fairlane.scheduled_keys (partition_id, key, segment_id) VALUES (p_partition, v_key, p_new)
        ON CONFLICT (partition_id, key) DO NOTHING;
    END IF;
    RETURN t_us;
END $$;

-- Records what was appended of segments that the caller has locked. p_next NULL: retry in a second. p_over: nothing is left.
CREATE OR REPLACE FUNCTION fairlane.proceed_scheduled(
    p_ids uuid[], p_taken int[], p_next bigint[], p_over uuid[], p_partitions bigint[], p_keys bigint[], p_key_ids uuid[],
    p_hole_ids uuid[], p_holes int[], p_now timestamptz
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_next timestamptz[] := ARRAY(SELECT coalesce(fairlane.at_us(x.at), t + interval '1 second')
                                  FROM unnest(p_next) WITH ORDINALITY x(at, i) ORDER BY x.i);
BEGIN
    DELETE FROM fairlane.scheduled_keys k USING unnest(p_partitions, p_keys, p_key_ids) g(partition_id, key, id)
    WHERE k.partition_id = g.partition_id AND k.key = g.key AND k.segment_id = g.id;
    DELETE FROM fairlane.scheduled_messages m USING unnest(p_over) o(id) WHERE m.id = o.id;
    DELETE FROM fairlane.scheduled_segments b USING unnest(p_over) o(id) WHERE b.id = o.id;
    -- From the last one backwards, so that the positions of the others stay valid.
    FOR i IN REVERSE cardinality(p_holes) .. 1 LOOP
        PERFORM fairlane.take_out_scheduled(p_hole_ids[i], p_holes[i]);
    END LOOP;
    UPDATE fairlane.scheduled_segments b
    SET taken = u.taken, next_at = u.next_at FROM unnest(p_ids, p_taken, v_next) u(id, taken, next_at)
    WHERE b.id = u.id;
END $$;

-- Deletes the scheduled messages of partitions. The caller locked their segments before anything else, like the scheduler. A
-- segment that was scheduled meanwhile may be locked by a session that waits for a partition. It is newer than the caller, and
-- stays.
CREATE OR REPLACE FUNCTION fairlane.clear_scheduled(p_partitions bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[] := ARRAY(SELECT b.id FROM fairlane.scheduled_segments b WHERE b.partition_id = ANY (p_partitions)
                          FOR UPDATE SKIP LOCKED);
BEGIN
    DELETE FROM fairlane.scheduled_messages x WHERE x.id = ANY (v_ids);
    DELETE FROM fairlane.scheduled_keys x
    WHERE x.partition_id = ANY (p_partitions) AND x.segment_id = ANY (v_ids);
    DELETE FROM fairlane.scheduled_segments x WHERE x.id = ANY (v_ids);
END $$;
