-- Appends one slice to each partition. Partitions are sorted by id. Values per message are flattened: slice i has the elements
-- p_upto[i - 1] + 1 to p_upto[i]. Each slice is cut into the segments that p_cut_* describe. Returns one row per slice, or one
-- row per duplicate. `state` is:
--   stored             at `position` and behind it; `created_at` is `ahead_ms` ahead of the clock
--   duplicate          message `item` is known at `position`, in the lane `lane` of another priority if that is not null
--   full               the queue has `depth` of `capacity` messages
--   gone               the partition or its queue was deleted, or the queue got a max_size
--   operations_ahead   operations of the partition come first
--   texts_needed       the only row: repeat the call with the texts of the ids
--
-- Every step is a separate statement, so that it sees commits from while the previous step waited for a lock: a push that waited
-- for the ack that drained its lane must see the drained cursor, or the lane would sleep forever.
--
-- A step handles all partitions in one statement. A statement costs as much before its first row as one partition, so an IF
-- without a query guards rare ones. Rows of partitions and cursors are found by their newest epoch, and updated by it: a plan
-- that reads every version of a row would be slow while a transaction stays open elsewhere. So the planner can only choose index
-- loops.
CREATE OR REPLACE FUNCTION fairlane.push(
    p_limited bigint[],            -- queues that the caller knows to have a max_size
    p_ids bigint[],
    p_queues bigint[],
    p_upto int[],
    p_bytes_max int[],             -- largest message of each slice
    p_id_oldest bigint[],          -- earliest and latest time inside a UUIDv7 id of the slice, in ms since 1970;
    p_id_newest bigint[],          -- an id that is not a UUIDv7 has the time -1
    p_given_oldest bigint[],       -- earliest of those that may be duplicates, 2^62 if none may be
    p_window int[],                -- seconds for which ids are remembered
    p_keys bigint[],
    p_id_times bigint[],
    p_ends int[],
    p_cut_slice int[],
    p_cut_first int[],             -- index of the segment's first message in the flat arrays
    p_cut_n int[],
    p_cut_checksum bigint[],
    p_cut_body bytea[],
    p_message_ids text[],          -- empty unless texts are needed
    p_transaction_ids text[],
    p_unordered int[],             -- slices whose ids may be known in lanes of other priorities
    p_now timestamptz
) RETURNS TABLE (state text, slice int, item int, "position" bigint, created_at timestamptz, ahead_ms int, depth bigint, capacity bigint,
                 lane bigint, head bytea, message_id text, transaction_id text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    t_ms bigint;
    v_at_ms bigint[];              -- the time that the messages of each slice get
    v_none bigint := 4611686018427387904;
    v_ids bigint[];
    v_head bigint[];
    v_last timestamptz[];
    v_newest bigint[];
    v_keyed bigint[];
    v_open int[];
    v_epochs bigint[];
    v_asleep bigint[];
    v_asleep_groups bigint[];
    v_asleep_epochs bigint[];
    v_asleep_ready timestamptz[];
    v_changed bigint;
    i int;
    v_leads interval[];
    v_doubted bigint[];
    v_doubted_max bigint;
    v_skip boolean[] := array_fill(false, ARRAY[cardinality(p_ids)]);
    v_depth bigint[];
    v_capacity bigint[];
    v_texts boolean := false;
    v_there bigint[];
    v_stale boolean;
    v_retained boolean;
    v_family bigint[];
    v_fresh bigint[];              -- lanes that were empty
    v_fresh_queues bigint[];
    v_due timestamptz[];
    lo int;
    r record;
    v record;
BEGIN
    IF p_limited <> '{}' THEN
        PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (p_limited) ORDER BY q.id FOR UPDATE;
        v_depth := array_fill(NULL::bigint, ARRAY[cardinality(p_ids)]);
        v_capacity := v_depth;
    END IF;
    IF p_unordered <> '{}' THEN
        -- Two pushes may bring the same id to two lanes at once. So lock every lane that is searched, in the order of ids.
        v_family := fairlane.priority_lanes(p_ids, p_unordered);
        PERFORM 1 FROM (SELECT i.id FROM unnest(p_ids || v_family) i(id) GROUP BY i.id ORDER BY i.id) i
        CROSS JOIN LATERAL (
            SELECT 1 FROM fairlane.partitions p WHERE p.id = i.id ORDER BY p.epoch DESC LIMIT 1
            FOR NO KEY UPDATE) x;
        IF NOT fairlane.priority_lanes(p_ids, p_unordered) <@ v_family THEN
            RAISE EXCEPTION 'a lane of another priority was made meanwhile' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    SELECT array_agg(x.id), array_agg(x.head), array_agg(x.last_at), array_agg(x.newest_id_ms), array_agg(x.keyed_until_ms),
           array_agg(x.open_operations), array_agg(x.doubted_until_ms), max(x.doubted_until_ms), array_agg(x.priority_lead),
           array_agg(x.epoch)
    INTO v_ids, v_head, v_last, v_newest, v_keyed, v_open, v_doubted, v_doubted_max, v_leads, v_epochs
    FROM unnest(p_ids) i(id) CROSS JOIN LATERAL (
        SELECT p.* FROM fairlane.partitions p WHERE p.id = i.id ORDER BY p.epoch DESC LIMIT 1
        FOR NO KEY UPDATE) x;
    -- Under the locks: a queue that was deleted or got a limit since the caller read it refuses the whole call.
    SELECT array_agg(q.id), bool_or((q.options ->> 'max_size')::bigint > 0 AND q.id <> ALL (p_limited)), bool_or(q.retained)
    INTO v_there, v_stale, v_retained FROM fairlane.queues q WHERE q.id = ANY (p_queues);
    IF v_ids IS DISTINCT FROM p_ids OR v_stale OR NOT p_queues <@ coalesce(v_there, '{}') THEN
        RETURN QUERY SELECT s.* FROM generate_subscripts(p_ids, 1) i CROSS JOIN LATERAL fairlane.push_refusal('gone', i) s;
        RETURN;
    END IF;
    -- Also under the locks: storing a slice or making it wait is one decision.
    IF 0 <> ANY (v_open) THEN
        FOR i IN 1 .. cardinality(p_ids) LOOP
            CONTINUE WHEN v_open[i] = 0;
            v_skip[i] := true;
            RETURN QUERY SELECT * FROM fairlane.push_refusal('operations_ahead', i);
        END LOOP;
    END IF;
    t := coalesce(p_now, clock_timestamp());
    t_ms := floor(extract(epoch FROM t) * 1000);
    v_at_ms := array_fill(t_ms, ARRAY[cardinality(p_ids)]);
    IF t < ANY (v_last) THEN  -- the clock went back
        FOR i IN 1 .. cardinality(p_ids) LOOP
            v_at_ms[i] := greatest(t_ms, floor(extract(epoch FROM v_last[i]) * 1000));
        END LOOP;
    END IF;

    -- Ids from the current time are found by their texts. Of the others, those that cannot be duplicates need no lookup, unless
    -- ids of their time were pushed in doubt: an abandoned call and its retry may arrive only now.
    IF t_ms < ANY (p_id_newest) OR t_ms - 60000 > ANY (p_id_oldest) OR t < ANY (v_last) THEN
        SELECT coalesce(bool_or(s.newest > s.at_ms OR s.oldest < s.at_ms - 60000), false) INTO v_texts
        FROM unnest(v_skip, p_id_newest, p_id_oldest, v_at_ms) s(skip, newest, oldest, at_ms) WHERE NOT s.skip;
    END IF;
    IF v_texts AND p_message_ids = '{}' THEN
        RETURN QUERY SELECT * FROM fairlane.push_refusal('texts_needed', 0);
        RETURN;
    END IF;
    IF v_none <> ANY (p_given_oldest) OR v_doubted_max >= ANY (p_id_oldest) THEN
        FOR i IN
            SELECT s.i::int
            FROM unnest(v_skip, p_id_newest, p_id_oldest, p_given_oldest, p_window, v_newest, v_doubted)
                 WITH ORDINALITY s(skip, newest, oldest, given, seconds, known, doubted, i)
            WHERE NOT s.skip AND s.newest >= 0 AND s.seconds > 0  -- ids other than UUIDv7 are looked up together
              AND ((s.given <> v_none AND (s.given <= s.known OR v_texts)) OR s.oldest <= s.doubted)
            ORDER BY s.i
        LOOP
            lo := coalesce(p_upto[i - 1], 0) + 1;
            FOR r IN SELECT * FROM fairlane.look_up(p_ids[i], p_keys[lo : p_upto[i]], p_id_times[lo : p_upto[i]],
                                                    v_newest[i], v_keyed[i], t, p_window[i]) f
                     WHERE fairlane.is_known(p_ids[i], f.pos)
            LOOP
                v_skip[i] := true;
                RETURN QUERY SELECT 'duplicate', i, r.item, r.pos, NULL::timestamptz, 0, NULL::bigint, NULL::bigint, NULL::bigint,
                                    r.head, r.message_id, r.transaction_id;
            END LOOP;
        END LOOP;
    END IF;
    IF v_texts THEN
        FOR r IN
            SELECT s.i::int AS slice, j - coalesce(p_upto[s.i::int - 1], 0) AS item, k.position AS pos, k.message_id, k.transaction_id
            FROM unnest(p_ids, p_upto, v_skip, p_id_newest, p_window) WITH ORDINALITY s(id, upto, skip, newest, seconds, i)
            CROSS JOIN LATERAL generate_series(coalesce(p_upto[s.i::int - 1], 0) + 1, s.upto) j
            CROSS JOIN LATERAL fairlane.key_of(s.id, p_keys[j]) k
            WHERE NOT s.skip AND s.newest < 0 AND s.seconds > 0 AND k.created_at >= t - make_interval(secs => s.seconds)
              AND fairlane.is_known(s.id, k.position)
        LOOP
            v_skip[r.slice] := true;
            RETURN QUERY SELECT 'duplicate', r.slice, r.item, r.pos, NULL::timestamptz, 0, NULL::bigint, NULL::bigint, NULL::bigint,
                                NULL::bytea, r.message_id, r.transaction_id;
        END LOOP;
    END IF;

    IF p_unordered <> '{}' THEN
        FOR v IN
            SELECT s.i, x.id, x.newest_id_ms, x.keyed_until_ms FROM unnest(p_unordered) s(i)
            CROSS JOIN LATERAL unnest(fairlane.priority_lanes(p_ids, ARRAY[s.i])) f(id)
            JOIN fairlane.partitions x ON x.id = f.id
            WHERE NOT v_skip[s.i] AND f.id <> p_ids[s.i]
        LOOP
            lo := coalesce(p_upto[v.i - 1], 0) + 1;
            FOR r IN SELECT * FROM fairlane.look_up(v.id, p_keys[lo : p_upto[v.i]], p_id_times[lo : p_upto[v.i]],
                                                    v.newest_id_ms, v.keyed_until_ms, t, p_window[v.i]) f
                     WHERE fairlane.is_known(v.id, f.pos)
            LOOP
                v_skip[v.i] := true;
                RETURN QUERY SELECT 'duplicate', v.i, r.item, r.pos, NULL::timestamptz, 0, NULL::bigint, NULL::bigint, v.id,
                                    r.head, r.message_id, r.transaction_id;
            END LOOP;
        END LOOP;
    END IF;

    IF p_limited <> '{}' THEN
        FOR r IN
            SELECT q.id, q.depth, (q.options ->> 'max_size')::bigint AS capacity, u.n, u.slices
            FROM (SELECT s.queue_id, sum(s.upto - coalesce(p_upto[s.i - 1], 0)) AS n, array_agg(s.i::int) AS slices
                  FROM unnest(p_queues, p_upto, v_skip) WITH ORDINALITY s(queue_id, upto, skip, i)
                  WHERE NOT s.skip GROUP BY s.queue_id) u
            JOIN fairlane.queues q ON q.id = u.queue_id
            WHERE q.id = ANY (p_limited) AND (q.options ->> 'max_size')::bigint > 0
        LOOP
            FOR j IN 1 .. cardinality(r.slices) LOOP
                v_skip[r.slices[j]] := r.depth + r.n > r.capacity;
                v_depth[r.slices[j]] := r.depth + r.n;
                v_capacity[r.slices[j]] := r.capacity;
            END LOOP;
            IF r.depth + r.n > r.capacity THEN
                RETURN QUERY SELECT x.* FROM unnest(r.slices) s
                             CROSS JOIN LATERAL fairlane.push_refusal('full', s, r.depth, r.capacity) x;
            ELSE
                UPDATE fairlane.queues q SET depth = q.depth + r.n WHERE q.id = r.id;
            END IF;
        END LOOP;
    END IF;

    INSERT INTO fairlane.segments (partition_id, first_pos, n, created_at, checksum, ends, keys, body)
    SELECT p_ids[c.s], v_head[c.s] + c.f - 1 - coalesce(p_upto[c.s - 1], 0), c.n, greatest(v_last[c.s], t),
           c.checksum, p_ends[c.f : c.f + c.n - 1], p_keys[c.f : c.f + c.n - 1], c.body
    FROM unnest(p_cut_slice, p_cut_first, p_cut_n, p_cut_checksum, p_cut_body) c(s, f, n, checksum, body)
    WHERE NOT v_skip[c.s];

    IF v_texts THEN
        INSERT INTO fairlane.message_keys AS k
               (partition_id, key, position, created_at, message_id, transaction_id)
        SELECT DISTINCT ON (m.s, m.key)
               p_ids[m.s], m.key, v_head[m.s] + m.i - 1 - coalesce(p_upto[m.s - 1], 0), greatest(v_last[m.s], t),
               p_message_ids[m.i], p_transaction_ids[m.i]
        FROM (SELECT s.i::int AS s, j AS i, p_keys[j] AS key, p_id_times[j] AS id_at
              FROM unnest(p_upto, v_skip) WITH ORDINALITY s(upto, skip, i)
              CROSS JOIN LATERAL generate_series(coalesce(p_upto[s.i::int - 1], 0) + 1, s.upto) j
              WHERE NOT s.skip) m
        WHERE m.id_at > v_at_ms[m.s] OR m.id_at < v_at_ms[m.s] - 60000
        ORDER BY m.s, m.key, m.i DESC
        ON CONFLICT (partition_id, key) DO UPDATE
        SET position = excluded.position, created_at = excluded.created_at, message_id = excluded.message_id,
            transaction_id = excluded.transaction_id;
    END IF;

    -- Sleeping lanes become ready. No other session changes that while this one holds the partition, so the rows found here still
    -- exist.
    SELECT array_agg(x.partition_id), array_agg(x.group_id), array_agg(x.epoch), array_agg(t - i.priority_lead)
    INTO v_asleep, v_asleep_groups, v_asleep_epochs, v_asleep_ready
    FROM unnest(p_ids, p_queues, v_skip, v_leads) i(id, queue, skip, priority_lead)
    JOIN fairlane.groups g ON g.queue_id = i.queue
    CROSS JOIN LATERAL (
        SELECT c.* FROM fairlane.cursors c WHERE c.partition_id = i.id AND c.group_id = g.id
        ORDER BY c.epoch DESC LIMIT 1) x
    WHERE NOT i.skip AND x.ready_at IS NULL;
    IF v_asleep IS NOT NULL THEN
        UPDATE fairlane.cursors c SET ready_at = a.ready_at, epoch = c.epoch + 1
        FROM unnest(v_asleep, v_asleep_groups, v_asleep_epochs, v_asleep_ready)
             a(id, grp, epoch, ready_at)
        WHERE c.partition_id = a.id AND c.group_id = a.grp AND c.epoch = a.epoch AND c.ready_at IS NULL;
        GET DIAGNOSTICS v_changed = ROW_COUNT;
        IF v_changed < cardinality(v_asleep) THEN
            RAISE EXCEPTION 'a lane changed while its partition was held' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;

    UPDATE fairlane.partitions p
    SET head = p.head + u.upto - u.low, pushes = p.pushes + 1, epoch = (p.pushes + 1) >> 4, last_at = greatest(p.last_at, t),
        newest_id_ms = greatest(p.newest_id_ms, u.newest),
        keyed_until_ms = CASE WHEN u.newest > u.at_ms THEN greatest(p.keyed_until_ms, u.newest) ELSE p.keyed_until_ms END,
        doubted_until_ms = CASE WHEN u.given <> v_none THEN greatest(p.doubted_until_ms, least(u.newest, t_ms + 60000))
                                ELSE p.doubted_until_ms END,
        message_bytes_max = greatest(p.message_bytes_max, u.bytes_max)
    FROM unnest(p_ids, v_epochs, v_skip, p_upto, 0 || p_upto, p_id_newest, v_at_ms,
                p_given_oldest, p_bytes_max) u(id, epoch, skip, upto, low, newest, at_ms, given, bytes_max)
    WHERE p.id = u.id AND p.epoch = u.epoch AND NOT u.skip;
    GET DIAGNOSTICS v_changed = ROW_COUNT;
    IF v_changed < cardinality(array_positions(v_skip, false)) THEN
        RAISE EXCEPTION 'a partition changed while it was held' USING ERRCODE = 'serialization_failure';
    END IF;

    IF v_retained THEN
        -- An empty lane has a first message now, whose age retention depends on.
        SELECT array_agg(p.id), array_agg(q.id), array_agg(t + make_interval(secs => x.seconds)) INTO v_fresh, v_fresh_queues, v_due
        FROM fairlane.partitions p
        JOIN fairlane.queues q ON q.id = p.queue_id
        CROSS JOIN LATERAL (SELECT least(nullif((q.options ->> 'retention_seconds')::bigint, 0),
                                         nullif((q.options ->> 'completed_retention_seconds')::bigint, 0)) AS seconds) x
        WHERE p.id = ANY (p_ids) AND q.retained AND x.seconds IS NOT NULL
          AND p.head > p.start AND p.start = v_head[array_position(p_ids, p.id)];
        INSERT INTO fairlane.expiries AS e (partition_id, queue_id, due_at)
        SELECT u.id, u.queue_id, u.due_at FROM unnest(v_fresh, v_fresh_queues, v_due) u(id, queue_id, due_at)
        ON CONFLICT (partition_id) DO UPDATE SET due_at = excluded.due_at;
    END IF;

    RETURN QUERY SELECT 'stored', s.i::int, 0, v_head[s.i], greatest(v_last[s.i], t), least(v_at_ms[s.i] - t_ms, 2147483647)::int,
                        v_depth[s.i], v_capacity[s.i], NULL::bigint, NULL::bytea, NULL::text, NULL::text
                 FROM unnest(v_skip) WITH ORDINALITY s(skip, i) WHERE NOT s.skip;
END $$;

-- The row of `push` for a slice that was not stored.
CREATE OR REPLACE FUNCTION fairlane.push_refusal(p_state text, p_slice int, p_depth bigint DEFAULT NULL, p_capacity bigint DEFAULT NULL)
RETURNS TABLE (state text, slice int, item int, "position" bigint, created_at timestamptz, ahead_ms int, depth bigint, capacity bigint,
               lane bigint, head bytea, message_id text, transaction_id text)
LANGUAGE sql IMMUTABLE AS $$
    SELECT p_state, p_slice, 0, 0::bigint, NULL::timestamptz, 0, p_depth, p_capacity, NULL::bigint, NULL::bytea, NULL::text, NULL::text;
$$;

-- The lanes of the partitions of slices for unordered queues, one per priority: p, p!1 .. p!9 of each.
CREATE OR REPLACE FUNCTION fairlane.priority_lanes(p_ids bigint[], p_slices int[]) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(DISTINCT x.id), '{}')
    FROM unnest(p_slices) s(i)
    JOIN fairlane.partitions p ON p.id = p_ids[s.i]
    CROSS JOIN unnest('{"",!1,!2,!3,!4,!5,!6,!7,!8,!9}'::text[]) n(suffix)
    JOIN fairlane.partitions x ON x.queue_id = p.queue_id AND x.name = regexp_replace(p.name, '![1-9]$', '') || n.suffix
    ;
$$;
