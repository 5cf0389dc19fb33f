-- Acks one lane per element, sorted by (partition, group): finishes positions from p_first to below p_upto and those in p_ahead,
-- then applies the nack and the dead letters. A position finished ahead of the cursor has a row in `skips` until the cursor has
-- passed it. A lane with pending ack operations is not changed, because this ack comes after them. `state` is ok, lost (the lease
-- is not live), gone (no such lane) or operations_ahead. The token is compared in the statement that moves the cursor. Without
-- p_fenced the ack has no lease. Every change of a cursor locks the row of its partition: a lane may be declared empty only
-- against a head that cannot move.
CREATE OR REPLACE FUNCTION fairlane.ack(
    p_partitions bigint[],
    p_groups bigint[],
    p_fenced boolean[],
    p_tokens uuid[],
    p_upto bigint[],
    p_first bigint[],
    p_nack bigint[],           -- position, -1 for none
    p_charge boolean[],
    p_delay_ms bigint[],       -- -1: the queue's backoff
    p_errors text[],
    p_tracebacks text[],       -- empty if no nack has one
    p_dead_lane int[],         -- messages to dead-letter: index of the lane, position, error
    p_dead_at bigint[],
    p_dead_error text[],
    p_dead_traceback text[],
    p_ahead_lane int[],        -- ranges after p_upto
    p_ahead_first bigint[],
    p_ahead_upto bigint[],
    p_result_lane int[],
    p_result_at bigint[],
    p_results bytea[],
    p_now timestamptz
) RETURNS TABLE (lane int, state text, before bigint, after bigint, dead boolean, released boolean, repeated boolean, "limit" bigint,
                 finished bigint[])
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    i int;
    o jsonb;
    v_queue bigint;
    v_queues bigint[];
    v_heads bigint[];
    v_leads interval[];
    v_awake timestamptz[];     -- when each lane that is not drained is ready
    v_epochs bigint[];
    v_ends bigint[];
    v_from bigint[];
    v_plain boolean[];         -- the common case: a live lease, messages in order, nothing failed
    v_done boolean[];
    v_changed bigint;
    v_limited bigint[];
    v_there bigint[];          -- queues that exist
    v_stale boolean;
    v_before bigint[] := '{}';
    c record;
    v_upto bigint;
    v_live boolean;
    v_sleep bigint;
    v_attempts int;
    v_ready timestamptz;
    v_failing boolean;
    v_dead boolean;
    v_dead_letters int;
    v_nack boolean;
    v_blocked boolean;
    v_open_acks boolean;
    v_behind int[] := '{}';
    v_limit bigint;
    v_stop bigint;
    v_firsts bigint[];
    v_uptos bigint[];
    v_finished bigint[];
    v_again_lane int[] := '{}';  -- positions finished ahead before, which keep their results
    v_again_at bigint[] := '{}';
BEGIN
    v_limited := fairlane.limited_queues(p_partitions);
    IF v_limited <> '{}' THEN
        PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_limited) ORDER BY q.id FOR UPDATE;
    END IF;
    SELECT bool_or(x.open_acks > 0), array_agg(x.queue_id), array_agg(x.head), array_agg(x.priority_lead)
    INTO v_open_acks, v_queues, v_heads, v_leads
    FROM unnest(p_partitions) i(id) LEFT JOIN LATERAL (
        SELECT p.* FROM fairlane.partitions p WHERE p.id = i.id ORDER BY p.epoch DESC LIMIT 1
        FOR NO KEY UPDATE) x ON true;
    SELECT array_agg(q.id), bool_or((q.options ->> 'max_size')::bigint > 0 AND q.id <> ALL (v_limited)) INTO v_there, v_stale
    FROM fairlane.queues q WHERE q.id = ANY (v_queues);
    IF v_stale THEN
        RAISE EXCEPTION 'a queue got a max_size meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    t := coalesce(p_now, clock_timestamp());
    FOR i IN 1 .. cardinality(v_limited) LOOP
        v_before := v_before || fairlane.count_finished(ARRAY(
            SELECT p.id FROM fairlane.partitions p
            WHERE p.id = ANY (p_partitions) AND p.queue_id = v_limited[i]));
    END LOOP;

    IF v_open_acks THEN
        SELECT coalesce(array_agg(a.i::int), '{}') INTO v_behind
        FROM unnest(p_partitions, p_groups) WITH ORDINALITY a(id, grp, i)
        JOIN fairlane.operation_backlogs l ON l.partition_id = a.id AND l.group_id = a.grp
        WHERE NOT l.passing;
        RETURN QUERY SELECT i, 'operations_ahead', 0::bigint, 0::bigint, false, false, false, 0::bigint, '{}'::bigint[] FROM unnest(v_behind) i;
    END IF;

    SELECT array_agg(x.epoch), array_agg(x.lease_end), array_agg(coalesce(x.committed, 0)),
           array_agg(CASE WHEN a.upto < a.head THEN t - a.priority_lead END),
           array_agg(coalesce(a.fenced AND a.nack < 0 AND x.lease = a.token AND x.ready_at > t AND NOT x.failing
                              AND a.upto > x.committed AND a.upto <= x.lease_end AND a.first <= x.committed
                              AND a.queue = ANY (v_there) AND NOT a.i::int = ANY (p_dead_lane || p_ahead_lane || v_behind), false))
    INTO v_epochs, v_ends, v_from, v_awake, v_plain
    FROM unnest(p_partitions, p_groups, p_fenced, p_tokens, p_nack, p_upto, p_first, v_queues, v_heads, v_leads)
         WITH ORDINALITY a(id, grp, fenced, token, nack, upto, first, queue, head, priority_lead, i)
    LEFT JOIN LATERAL (
        SELECT k.* FROM fairlane.cursors k WHERE k.partition_id = a.id AND k.group_id = a.grp
        ORDER BY k.epoch DESC LIMIT 1 FOR UPDATE) x ON true;
    v_done := v_plain;
    IF true = ANY (v_plain) THEN
        UPDATE fairlane.cursors k
        SET committed = a.upto, epoch = k.epoch + 1,
            lease = CASE WHEN a.upto < k.lease_end THEN k.lease END,
            last_lease = CASE WHEN a.upto < k.lease_end THEN k.last_lease ELSE k.lease END,
            ready_at = CASE WHEN a.upto < k.lease_end THEN k.ready_at ELSE a.awake END
        FROM unnest(p_partitions, p_groups, v_epochs, p_upto, v_awake, v_plain) a(id, grp, epoch, upto, awake, plain)
        WHERE k.partition_id = a.id AND k.group_id = a.grp AND k.epoch = a.epoch AND a.plain;
        GET DIAGNOSTICS v_changed = ROW_COUNT;
        IF v_changed < cardinality(array_positions(v_plain, true)) THEN
            RAISE EXCEPTION 'a lane changed while it was held' USING ERRCODE = 'serialization_failure';
        END IF;
        RETURN QUERY SELECT a.i::int, 'ok', a.committed, a.upto, false, a.upto >= a.lease_end, false, a.lease_end, '{}'::bigint[]
                     FROM unnest(v_from, p_upto, v_ends, v_plain) WITH ORDINALITY a(committed, upto, lease_end, plain, i) WHERE a.plain;
    END IF;

    FOR i IN 1 .. cardinality(v_plain) LOOP
        CONTINUE WHEN v_plain[i] OR i = ANY (v_behind);
        SELECT k.*, p.head, p.queue_id, p.priority_lead INTO c
        FROM (SELECT x.* FROM fairlane.cursors x
              WHERE x.partition_id = p_partitions[i] AND x.group_id = p_groups[i]
              ORDER BY x.epoch DESC LIMIT 1 FOR UPDATE) k
        CROSS JOIN LATERAL (
            SELECT x.* FROM fairlane.partitions x WHERE x.id = k.partition_id
            ORDER BY x.epoch DESC LIMIT 1) p;
        IF FOUND AND c.queue_id IS DISTINCT FROM v_queue THEN
            SELECT q.id, q.options INTO v_queue, o FROM fairlane.queues q WHERE q.id = c.queue_id;
        END IF;
        IF NOT FOUND OR c.queue_id IS DISTINCT FROM v_queue THEN
            RETURN QUERY SELECT i, 'gone', 0::bigint, 0::bigint, false, false, false, 0::bigint, '{}'::bigint[];
            CONTINUE;
        END IF;
        v_live := c.lease IS NOT NULL AND c.ready_at > t;
        IF p_fenced[i] AND NOT (v_live AND c.lease = p_tokens[i]) THEN
            RETURN QUERY SELECT i, 'lost', c.committed, c.committed, false, false,
                                c.last_lease IS NOT DISTINCT FROM p_tokens[i] AND p_nack[i] < 0 AND NOT i = ANY (p_dead_lane)
                                AND NOT EXISTS (
                                    SELECT 1 FROM fairlane.spans(i, p_first, p_upto, p_ahead_lane, p_ahead_first, p_ahead_upto) r
                                    WHERE fairlane.has_open(c.partition_id, c.group_id, greatest(r.first, c.committed), r.upto)),
                                0::bigint, '{}'::bigint[];
            CONTINUE;
        END IF;
        -- Only messages that the last holder got may be finished, also without a lease.
        v_limit := greatest(c.committed, c.lease_end);
        v_stop := least(v_limit, CASE WHEN p_nack[i] >= c.committed THEN p_nack[i] END);
        SELECT array_agg(greatest(r.first, c.committed)), array_agg(least(r.upto, v_stop)) INTO v_firsts, v_uptos
        FROM fairlane.spans(i, p_first, p_upto, p_ahead_lane, p_ahead_first, p_ahead_upto) r;
        -- Positions that were finished ahead before are ignored, also if they failed now. At the cursor it can only be a message
        -- that was dead-lettered by hand: its holder may still nack it, to release the lane.
        SELECT coalesce(array_agg(x.position ORDER BY x.position), '{}') INTO v_finished FROM fairlane.skips x
        WHERE c.failing AND x.partition_id = c.partition_id AND x.group_id = c.group_id
          AND x.position > c.committed;
        v_again_lane := v_again_lane || array_fill(i, ARRAY[cardinality(v_finished)]);
        v_again_at := v_again_at || v_finished;
        v_upto := CASE WHEN p_first[i] <= c.committed THEN greatest(c.committed, least(p_upto[i], v_stop)) ELSE c.committed END;
        v_dead_letters := 0;
        FOR b IN 1 .. cardinality(p_dead_lane) LOOP
            CONTINUE WHEN p_dead_lane[b] <> i OR p_dead_at[b] < c.committed OR p_dead_at[b] >= v_stop
                          OR fairlane.next_skip(c.partition_id, c.group_id, p_dead_at[b]) = p_dead_at[b];
            PERFORM fairlane.dead_letter(c.queue_id, c.partition_id, c.group_id, p_dead_at[b], p_dead_error[b], t, 1,
                                         p_dead_traceback[b]);
            v_dead_letters := v_dead_letters + 1;
        END LOOP;
        IF p_first[i] > c.committed OR i = ANY (p_ahead_lane) THEN
            WITH done AS (
                SELECT DISTINCT g.at FROM unnest(v_firsts, v_uptos) r(first, upto)
                CROSS JOIN LATERAL generate_series(greatest(r.first, v_upto), r.upto - 1) g(at)),
            kept AS (
                INSERT INTO fairlane.skips (partition_id, position, group_id, created_at)
                SELECT c.partition_id, d.at, c.group_id, t FROM done d
                WHERE fairlane.next_skip(c.partition_id, c.group_id, d.at) IS DISTINCT FROM d.at)
            DELETE FROM fairlane.failures f USING done d
            WHERE f.partition_id = c.partition_id AND f.group_id = c.group_id AND f.position = d.at;
        END IF;
        v_dead := false;
        v_blocked := false;
        v_sleep := 0;
        IF p_nack[i] > v_upto THEN
            -- Pass messages that are finished ahead of the cursor and before the failed one.
            v_upto := fairlane.next_deliverable(c.partition_id, c.group_id, v_upto);
        END IF;
        v_nack := p_nack[i] >= v_upto AND p_nack[i] < v_limit AND p_nack[i] <> ALL (v_finished);
        IF v_nack AND p_charge[i] THEN
            INSERT INTO fairlane.failures AS f
                   (partition_id, group_id, position, attempts, error, traceback, first_failed_at, failed_at, retry_limit)
            VALUES (c.partition_id, c.group_id, p_nack[i], 1, p_errors[i], p_tracebacks[i], t, t,
                    fairlane.own_retry_limit(c.partition_id, p_nack[i]))
            ON CONFLICT (partition_id, group_id, position) DO UPDATE
            SET attempts = f.attempts + 1, error = excluded.error, traceback = excluded.traceback, failed_at = excluded.failed_at,
                history = fairlane.add_to_history(f.history, f.error, f.traceback, f.failed_at)
            RETURNING f.attempts, f.attempts > coalesce(f.retry_limit, (o ->> 'retry_limit')::int) INTO v_attempts, v_dead;
            IF v_dead AND (p_nack[i] > v_upto
                           OR fairlane.next_skip(c.partition_id, c.group_id, p_nack[i]) = p_nack[i]) THEN
                -- Earlier messages are still open: it is dead-lettered when the cursor reaches it. Or it was deleted meanwhile.
                v_dead := false;
            ELSIF v_dead AND o ->> 'on_exhausted' IN ('block', 'park') THEN
                v_dead := false;
                v_blocked := true;
            ELSIF v_dead THEN
                PERFORM fairlane.dead_letter(c.queue_id, c.partition_id, c.group_id, p_nack[i], p_errors[i], t, 0, p_tracebacks[i]);
                v_upto := p_nack[i] + 1;
                v_dead_letters := v_dead_letters + 1;
            ELSE
                v_sleep := least((o ->> 'retry_delay_ms')::bigint * 2 ^ least(v_attempts - 1, 40),
                                 nullif((o ->> 'retry_delay_max_ms')::bigint, 0))::bigint;
                IF (o ->> 'retry_jitter')::boolean THEN
                    v_sleep := (v_sleep * (0.5 + random() / 2))::bigint;
                END IF;
            END IF;
        END IF;
        IF v_nack AND NOT v_dead AND p_delay_ms[i] >= 0 THEN
            v_sleep := p_delay_ms[i];
        END IF;
        v_upto := fairlane.next_deliverable(c.partition_id, c.group_id, v_upto);
        IF v_upto > c.committed THEN
            DELETE FROM fairlane.failures f WHERE f.partition_id = c.partition_id
                                              AND f.group_id = c.group_id AND f.position < v_upto;
            DELETE FROM fairlane.skips x WHERE x.partition_id = c.partition_id
                                           AND x.position < v_upto AND x.group_id = c.group_id;
        END IF;
        -- A lease continues while part of its batch is open. A sleep continues while the cursor does not move.
        v_ready := CASE WHEN v_blocked THEN fairlane.never()
                        WHEN v_nack AND v_sleep > 0 THEN CASE WHEN v_upto < c.head THEN t + make_interval(secs => v_sleep / 1000.0) END
                        WHEN v_nack THEN CASE WHEN v_upto < c.head THEN t - c.priority_lead END
                        WHEN v_live AND v_upto < c.lease_end THEN c.ready_at
                        WHEN v_upto >= c.head THEN NULL
                        WHEN v_upto = c.committed THEN c.ready_at
                        ELSE t - c.priority_lead END;
        v_failing := fairlane.has_obstacles(c.partition_id, c.group_id, v_upto);
        UPDATE fairlane.cursors k
        SET committed = v_upto, dead = k.dead + v_dead_letters, ready_at = v_ready,
            parked = k.parked OR v_blocked AND o ->> 'on_exhausted' = 'park',
            lease = CASE WHEN v_nack OR v_upto >= c.lease_end THEN NULL ELSE c.lease END,
            last_lease = CASE WHEN v_live AND (v_nack OR v_upto >= c.lease_end) THEN c.lease ELSE c.last_lease END,
            failing = v_failing, epoch = k.epoch + 1
        WHERE k.partition_id = c.partition_id AND k.group_id = c.group_id AND k.epoch = c.epoch;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'lane % changed while it was held', c.partition_id USING ERRCODE = 'serialization_failure';
        END IF;
        v_done[i] := true;
        v_from[i] := c.committed;
        RETURN QUERY SELECT i, 'ok', c.committed, v_upto, v_dead,
                            v_live AND (v_nack OR v_upto >= c.lease_end), false, v_limit, v_finished;
    END LOOP;

    IF cardinality(p_result_lane) > 0 THEN
        INSERT INTO fairlane.results AS r (partition_id, group_id, position, result, created_at)
        SELECT p_partitions[x.lane], p_groups[x.lane], x.at, x.result, t
        FROM unnest(p_result_lane, p_result_at, p_results) x(lane, at, result)
        WHERE v_done[x.lane] AND x.at >= v_from[x.lane]
          AND NOT EXISTS (SELECT 1 FROM unnest(v_again_lane, v_again_at) a(lane, at) WHERE a.lane = x.lane AND a.at = x.at)
          AND (EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = p_partitions[x.lane]
                       AND k.group_id = p_groups[x.lane] AND k.committed > x.at)
               OR EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = p_partitions[x.lane]
                          AND s.position = x.at AND s.group_id = p_groups[x.lane]))
        ON CONFLICT (partition_id, group_id, position) DO UPDATE
        SET result = excluded.result, created_at = excluded.created_at;
    END IF;

    FOR i IN 1 .. cardinality(v_limited) LOOP
        v_upto := fairlane.count_finished(ARRAY(
            SELECT p.id FROM fairlane.partitions p
            WHERE p.id = ANY (p_partitions) AND p.queue_id = v_limited[i])) - v_before[i];
        UPDATE fairlane.queues q SET depth = q.depth - v_upto WHERE q.id = v_limited[i] AND v_upto > 0;
    END LOOP;
END $$;

-- The positions that an ack finishes, as ranges from the first to below the second.
CREATE OR REPLACE FUNCTION fairlane.spans(
    p_lane int, p_first bigint[], p_upto bigint[], p_ahead_lane int[], p_ahead_first bigint[], p_ahead_upto bigint[]
) RETURNS TABLE (first bigint, upto bigint) LANGUAGE sql IMMUTABLE AS $$
    SELECT p_first[p_lane], p_upto[p_lane]
    UNION ALL
    SELECT a.first, a.upto FROM unnest(p_ahead_lane, p_ahead_first, p_ahead_upto) a(lane, first, upto) WHERE a.lane = p_lane;
$$;

-- True if some of these positions, at or after the cursor, were not finished ahead of it.
CREATE OR REPLACE FUNCTION fairlane.has_open(p_partition bigint, p_group bigint, p_first bigint, p_upto bigint)
RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT p_upto - p_first > (SELECT count(*) FROM fairlane.skips x WHERE x.partition_id = p_partition
                               AND x.position >= p_first AND x.position < p_upto AND x.group_id IN (0, p_group));
$$;
