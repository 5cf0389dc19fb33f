-- Acks messages of unordered lanes independently. Lanes may occur several times, with different tokens. An item is a range of
-- positions and its verdict: done, failed, retry (without counting an attempt) or dead_letter; all but done have one position.
-- `finished`: positions that were finished before, `lost`: those that the token does not hold, `died`: dead-lettered ones. Every
-- change of a lane locks its cursor. `ready_at` is not changed, because it is about messages that were never delivered.
CREATE OR REPLACE FUNCTION fairlane.ack_unordered(
    p_partitions bigint[],
    p_groups bigint[],
    p_tokens uuid[],           -- NULL: without a lease
    p_release boolean[],       -- release what the token still holds afterwards
    p_item_lane int[],
    p_verdicts text[],
    p_first bigint[],
    p_upto bigint[],
    p_delay_ms bigint[],       -- -1: the queue's backoff
    p_errors text[],
    p_tracebacks text[],       -- empty if no item has one
    p_result_lane int[],
    p_result_at bigint[],
    p_results bytea[],
    p_now timestamptz
) RETURNS TABLE (lane int, state text, before bigint, released boolean, finished bigint[], lost bigint[], died bigint[])
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_limited bigint[];
    v_freed bigint;
    v_done boolean[] := array_fill(false, ARRAY[cardinality(p_item_lane)]);
    v_span int[];               -- span of each item: adjacent items under one token form a span
    s_lane int[];
    s_first bigint[];
    s_upto bigint[];
    s_whole boolean[];          -- true if the span was a whole claim, which is deleted now
    v_again boolean[] := array_fill(false, ARRAY[cardinality(p_partitions)]);
    h_partition bigint[];       -- claims that some tokens still hold
    h_group bigint[];
    h_token uuid[];
    f_lane int[] := '{}';       -- finished ranges
    f_first bigint[] := '{}';
    f_upto bigint[] := '{}';
    v_took bigint[];
    v_attempts int;
    v_limit int;
    v_sleep bigint;
    v_lane int;
    v_partition bigint;         -- partition of the record `c`
    v_group bigint;
    c record;
    r record;
    x_lane int[] := '{}';       -- positions and their results: finished (before), lost, died
    x_at bigint[] := '{}';
    x_result text[] := '{}';
BEGIN
    -- Lanes are looked up by the ids of their partitions even where a join names them: a plan that was made for nearly empty
    -- tables would scan them otherwise.
    v_limited := fairlane.limited_queues(p_partitions);
    PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_limited) ORDER BY q.id FOR UPDATE;
    PERFORM 1 FROM fairlane.cursors k
    JOIN (SELECT DISTINCT u.id, u.grp FROM unnest(p_partitions, p_groups) u(id, grp)) u ON u.id = k.partition_id AND u.grp = k.group_id
    WHERE k.partition_id = ANY (p_partitions) ORDER BY k.partition_id, k.group_id FOR UPDATE OF k;
    IF NOT fairlane.limited_queues(p_partitions) <@ v_limited THEN
        RAISE EXCEPTION 'a queue got a max_size meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    t := coalesce(p_now, clock_timestamp());

    -- The fast path: whole claims in one statement, from one call or several.
    SELECT array_agg(x.span ORDER BY x.n) INTO v_span
    FROM (SELECT e.n, (count(*) FILTER (WHERE e.begins) OVER (ORDER BY e.id, e.grp, e.token, e.first, e.upto, e.n))::int AS span
          FROM (SELECT w.n, y.id, y.grp, y.token, w.first, w.upto,
                       w.first IS DISTINCT FROM lag(w.upto) OVER (PARTITION BY y.id, y.grp, y.token ORDER BY w.first, w.upto, w.n) AS begins
                FROM unnest(p_item_lane, p_first, p_upto) WITH ORDINALITY w(lane, first, upto, n)
                JOIN unnest(p_partitions, p_groups, p_tokens) WITH ORDINALITY y(id, grp, token, lane) ON y.lane = w.lane) e) x;
    SELECT array_agg(x.lane ORDER BY x.span), array_agg(x.first ORDER BY x.span), array_agg(x.upto ORDER BY x.span)
    INTO s_lane, s_first, s_upto
    FROM (SELECT w.span, min(w.lane) AS lane, min(w.first) AS first, max(w.upto) AS upto
          FROM unnest(v_span, p_item_lane, p_first, p_upto) w(span, lane, first, upto) GROUP BY w.span) x;
    s_whole := array_fill(false, ARRAY[coalesce(cardinality(s_lane), 0)]);
    FOR r IN
        DELETE FROM fairlane.claims m
        USING unnest(s_lane, s_first, s_upto) WITH ORDINALITY i(lane, first, upto, n)
        WHERE m.partition_id = ANY (p_partitions)
          AND m.partition_id = p_partitions[i.lane] AND m.group_id = p_groups[i.lane] AND m.first_pos = i.first
          AND m.upto = i.upto AND m.token = p_tokens[i.lane] AND m.ends_at > t
        RETURNING i.n
    LOOP
        s_whole[r.n] := true;
    END LOOP;
    -- Single redelivered messages.
    FOR r IN
        DELETE FROM fairlane.failures f
        USING unnest(p_item_lane, p_verdicts, p_first, p_upto) WITH ORDINALITY i(lane, verdict, first, upto, n)
        WHERE f.partition_id = ANY (p_partitions)
          AND f.partition_id = p_partitions[i.lane] AND f.group_id = p_groups[i.lane] AND f.position = i.first
          AND i.upto = i.first + 1 AND i.verdict = 'done' AND f.token = p_tokens[i.lane] AND f.due_at > t
        RETURNING i.n
    LOOP
        v_done[r.n] := true;
    END LOOP;

    FOR i IN 1 .. cardinality(p_item_lane) LOOP
        v_lane := p_item_lane[i];
        IF v_done[i] OR (s_whole[v_span[i]] AND p_verdicts[i] = 'done') THEN
            f_lane := f_lane || v_lane;
            f_first := f_first || p_first[i];
            f_upto := f_upto || p_upto[i];
            CONTINUE;
        END IF;
        IF p_verdicts[i] = 'done' AND p_tokens[v_lane] IS NOT NULL THEN
            -- The next fast path: a part of one claim, which is split.
            DELETE FROM fairlane.claims m
            WHERE m.partition_id = p_partitions[v_lane] AND m.group_id = p_groups[v_lane]
              AND m.first_pos = (SELECT x.first_pos FROM fairlane.claims x
                                 WHERE x.partition_id = p_partitions[v_lane] AND x.group_id = p_groups[v_lane]
                                   AND x.first_pos <= p_first[i] ORDER BY x.first_pos DESC LIMIT 1)
              AND m.upto >= p_upto[i] AND m.token = p_tokens[v_lane] AND m.ends_at > t
            RETURNING m.first_pos, m.upto, m.ends_at INTO r;
            IF FOUND THEN
                INSERT INTO fairlane.claims (partition_id, group_id, first_pos, upto, token, ends_at)
                SELECT p_partitions[v_lane], p_groups[v_lane], u.first, u.upto, p_tokens[v_lane], r.ends_at
                FROM unnest(ARRAY[r.first_pos, p_upto[i]], ARRAY[p_first[i], r.upto]) u(first, upto) WHERE u.first < u.upto;
                f_lane := f_lane || v_lane;
                f_first := f_first || p_first[i];
                f_upto := f_upto || p_upto[i];
                CONTINUE;
            END IF;
        END IF;
        IF (v_partition, v_group) IS DISTINCT FROM (p_partitions[v_lane], p_groups[v_lane]) THEN
            SELECT k.partition_id, k.group_id, greatest(k.committed, k.claimed) AS front, q.id AS queue_id, q.options AS o INTO c
            FROM fairlane.cursors k
            JOIN fairlane.partitions p ON p.id = k.partition_id
            JOIN fairlane.queues q ON q.id = p.queue_id
            WHERE k.partition_id = p_partitions[v_lane] AND k.group_id = p_groups[v_lane];
            v_partition := p_partitions[v_lane];
            v_group := p_groups[v_lane];
        END IF;
        CONTINUE WHEN c.partition_id IS NULL;
        IF s_whole[v_span[i]] THEN
            v_took := ARRAY[p_first[i]];
        ELSE
            v_took := fairlane.take_claims(c.partition_id, c.group_id, p_tokens[v_lane], p_first[i], p_upto[i], t);
        END IF;
        IF cardinality(v_took) < p_upto[i] - p_first[i] THEN
            FOR r IN
                SELECT g.pos, g.pos >= c.front
                    OR EXISTS (SELECT 1 FROM fairlane.claims m WHERE m.partition_id = c.partition_id
                               AND m.group_id = c.group_id AND m.first_pos <= g.pos AND m.upto > g.pos)
                    OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = c.partition_id
                               AND f.group_id = c.group_id AND f.position = g.pos AND f.due_at IS NOT NULL) AS open
                FROM generate_series(p_first[i], p_upto[i] - 1) g(pos) WHERE NOT g.pos = ANY (v_took)
            LOOP
                x_lane := x_lane || v_lane;
                x_at := x_at || r.pos;
                x_result := x_result || CASE WHEN r.open THEN 'lost' ELSE 'finished' END;
            END LOOP;
        END IF;
        CONTINUE WHEN v_took = '{}';
        IF p_verdicts[i] = 'done' THEN
            DELETE FROM fairlane.failures f WHERE f.partition_id = c.partition_id
                                              AND f.group_id = c.group_id AND f.position = ANY (v_took);
            f_lane := f_lane || array_fill(v_lane, ARRAY[cardinality(v_took)]);
            f_first := f_first || v_took;
            f_upto := f_upto || ARRAY(SELECT u + 1 FROM unnest(v_took) u);
            CONTINUE;
        END IF;
        v_attempts := 0;
        IF p_verdicts[i] IN ('failed', 'retry') THEN
            v_attempts := (p_verdicts[i] = 'failed')::int;
            v_limit := CASE WHEN p_verdicts[i] = 'failed' THEN fairlane.own_retry_limit(c.partition_id, p_first[i]) END;
            IF NOT s_whole[v_span[i]] THEN
                v_attempts := v_attempts + coalesce((
                    SELECT f.attempts FROM fairlane.failures f WHERE f.partition_id = c.partition_id
                    AND f.group_id = c.group_id AND f.position = p_first[i]), 0);
            END IF;
            v_sleep := greatest(p_delay_ms[i], 0);
            IF p_verdicts[i] = 'failed' AND p_delay_ms[i] < 0 THEN
                v_sleep := least((c.o ->> 'retry_delay_ms')::bigint * 2 ^ least(v_attempts - 1, 40),
                                 nullif((c.o ->> 'retry_delay_max_ms')::bigint, 0))::bigint;
                IF (c.o ->> 'retry_jitter')::boolean THEN
                    v_sleep := (v_sleep * (0.5 + random() / 2))::bigint;
                END IF;
            END IF;
            INSERT INTO fairlane.failures AS f
                   (partition_id, group_id, position, attempts, error, traceback, first_failed_at, failed_at, due_at, retry_limit)
            VALUES (c.partition_id, c.group_id, p_first[i], v_attempts, p_errors[i], p_tracebacks[i], t, t,
                    t + make_interval(secs => v_sleep / 1000.0), v_limit)
            ON CONFLICT (partition_id, group_id, position) DO UPDATE
            SET attempts = excluded.attempts, error = excluded.error, traceback = excluded.traceback, failed_at = excluded.failed_at,
                first_failed_at = CASE WHEN f.attempts = 0 THEN excluded.failed_at ELSE f.first_failed_at END,
                due_at = excluded.due_at, token = NULL, alone = false, retry_limit = coalesce(excluded.retry_limit, f.retry_limit),
                history = CASE WHEN f.attempts > 0 THEN fairlane.add_to_history(f.history, f.error, f.traceback, f.failed_at) ELSE f.history END;
        END IF;
        IF p_verdicts[i] = 'dead_letter' OR p_verdicts[i] = 'failed' AND v_attempts > coalesce(v_limit, (c.o ->> 'retry_limit')::int) THEN
            PERFORM fairlane.dead_letter(c.queue_id, c.partition_id, c.group_id, p_first[i], p_errors[i], t,
                                  (p_verdicts[i] = 'dead_letter')::int, p_tracebacks[i]);
            f_lane := f_lane || v_lane;
            f_first := f_first || p_first[i];
            f_upto := f_upto || p_first[i] + 1;
            x_lane := x_lane || v_lane;
            x_at := x_at || p_first[i];
            x_result := x_result || 'died'::text;
        ELSE
            v_again[v_lane] := true;
        END IF;
    END LOOP;

    FOR i IN 1 .. cardinality(p_partitions) LOOP
        IF p_release[i] AND p_tokens[i] IS NOT NULL THEN
            PERFORM fairlane.return_claims(p_partitions[i], p_groups[i], p_tokens[i], true, t);
        END IF;
    END LOOP;
    INSERT INTO fairlane.results AS e (partition_id, group_id, position, result, created_at)
    SELECT p_partitions[u.lane], p_groups[u.lane], u.at, u.result, t
    FROM unnest(p_result_lane, p_result_at, p_results) u(lane, at, result)
    WHERE NOT EXISTS (SELECT 1 FROM unnest(x_lane, x_at, x_result) x(lane, at, result)
                      WHERE x.lane = u.lane AND x.at = u.at AND x.result IN ('finished', 'lost'))
      AND EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = p_partitions[u.lane]
                  AND k.group_id = p_groups[u.lane])
    ON CONFLICT (partition_id, group_id, position) DO UPDATE
    SET result = excluded.result, created_at = excluded.created_at;

    IF v_limited <> '{}' THEN
        FOR r IN SELECT p.queue_id, p.id, p_groups[f.lane] AS grp, array_agg(f.first) AS firsts, array_agg(f.upto) AS uptos
                 FROM unnest(f_lane, f_first, f_upto) f(lane, first, upto)
                 JOIN fairlane.partitions p ON p.id = p_partitions[f.lane]
                 WHERE p.queue_id = ANY (v_limited) GROUP BY p.queue_id, p.id, p_groups[f.lane]
        LOOP
            v_freed := fairlane.count_freed(r.id, r.grp, r.firsts, r.uptos);
            UPDATE fairlane.queues q SET depth = q.depth - v_freed WHERE q.id = r.queue_id;
        END LOOP;
    END IF;

    SELECT array_agg(x.id), array_agg(x.grp), array_agg(x.token) INTO h_partition, h_group, h_token
    FROM (SELECT m.partition_id AS id, m.group_id AS grp, m.token
          FROM (SELECT DISTINCT w.id, w.grp FROM unnest(p_partitions, p_groups) w(id, grp)) u
          JOIN fairlane.claims m ON m.partition_id = u.id AND m.group_id = u.grp
          WHERE m.partition_id = ANY (p_partitions) AND m.token = ANY (p_tokens)
          UNION ALL
          SELECT f.partition_id, f.group_id, f.token
          FROM (SELECT DISTINCT w.id, w.grp FROM unnest(p_partitions, p_groups) w(id, grp)) u
          JOIN fairlane.failures f ON f.partition_id = u.id AND f.group_id = u.grp
          WHERE f.partition_id = ANY (p_partitions) AND f.token IS NOT NULL AND f.token = ANY (p_tokens)) x;

    RETURN QUERY
    SELECT u.i::int, CASE WHEN y.lost IS NOT NULL AND y.n = n.items THEN 'lost' ELSE 'ok' END, k.committed,
           v_again[u.i] OR (u.token IS NOT NULL AND NOT EXISTS (
               SELECT 1 FROM unnest(h_partition, h_group, h_token) h(id, grp, token)
               WHERE h.id = u.id AND h.grp = u.grp AND h.token = u.token)),
           coalesce(y.finished, '{}'), coalesce(y.lost, '{}'), coalesce(y.died, '{}')
    FROM unnest(p_partitions, p_groups, p_tokens) WITH ORDINALITY u(id, grp, token, i)
    JOIN fairlane.cursors k ON k.partition_id = ANY (p_partitions) AND k.partition_id = u.id AND k.group_id = u.grp
    LEFT JOIN (SELECT w.lane, sum(w.upto - w.first) AS items FROM unnest(p_item_lane, p_first, p_upto) w(lane, first, upto)
               GROUP BY w.lane) n ON n.lane = u.i
    LEFT JOIN (SELECT x.lane, array_agg(x.at ORDER BY x.at) FILTER (WHERE x.result = 'finished') AS finished,
                      array_agg(x.at ORDER BY x.at) FILTER (WHERE x.result = 'lost') AS lost,
                      array_agg(x.at ORDER BY x.at) FILTER (WHERE x.result = 'died') AS died,
                      count(*) FILTER (WHERE x.result IN ('finished', 'lost')) AS n
               FROM unnest(x_lane, x_at, x_result) x(lane, at, result) GROUP BY x.lane) y ON y.lane = u.i;

    UPDATE fairlane.cursors k
    SET dead = k.dead + u.died, committed = least(
            greatest(k.committed, k.claimed),
            (SELECT m.first_pos FROM fairlane.claims m WHERE m.partition_id = k.partition_id
             AND m.group_id = k.group_id AND m.first_pos >= k.committed ORDER BY m.first_pos LIMIT 1),
            (SELECT f.position FROM fairlane.failures f WHERE f.partition_id = k.partition_id
             AND f.group_id = k.group_id AND f.position >= k.committed AND f.due_at IS NOT NULL ORDER BY f.position LIMIT 1))
    FROM (SELECT w.id, w.grp, (SELECT count(*) FROM unnest(x_lane, x_result) x(lane, result) WHERE x.result = 'died'
                               AND p_partitions[x.lane] = w.id AND p_groups[x.lane] = w.grp) AS died
          FROM unnest(p_partitions, p_groups) w(id, grp) GROUP BY w.id, w.grp) u
    WHERE k.partition_id = ANY (p_partitions) AND k.partition_id = u.id AND k.group_id = u.grp;
END $$;
