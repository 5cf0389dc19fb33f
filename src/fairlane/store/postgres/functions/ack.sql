-- Settles one lane per element, sorted by (partition, group): finishes what lies below p_upto, then applies the nack and buries.
-- A lane whose acks wait as operations changes nothing: this one comes behind them (b).
-- The token is compared in the statement that moves the cursor. Without p_fenced the ack has no lease.
-- Whoever moves a cursor holds its partition's row: a lane may be declared empty only against a head that stands still.
CREATE OR REPLACE FUNCTION fairlane.ack(
    p_shard int,
    p_partitions bigint[],
    p_groups bigint[],
    p_fenced boolean[],
    p_tokens uuid[],
    p_upto bigint[],
    p_nack bigint[],           -- position, -1 for none
    p_charge boolean[],
    p_delay_ms bigint[],       -- -1: the queue's backoff
    p_errors text[],
    p_bury_lane int[],         -- messages to dead-letter: index of the lane, position, error
    p_bury_at bigint[],
    p_bury_error text[],
    p_result_lane int[],
    p_result_at bigint[],
    p_results bytea[],
    p_now timestamptz
) RETURNS TABLE (lane int, state "char", before bigint, after bigint, dead boolean, released boolean, repeated boolean)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    o jsonb;
    v_queue bigint;
    v_from bigint[] := array_fill(0::bigint, ARRAY[cardinality(p_partitions)]);
    v_done boolean[] := array_fill(false, ARRAY[cardinality(p_partitions)]);
    v_limited bigint[];
    v_now_limited bigint[];
    v_before bigint[] := '{}';
    c record;
    v_upto bigint;
    v_live boolean;
    v_sleep bigint;
    v_attempts int;
    v_ready timestamptz;
    v_dead boolean;
    v_buried int;
    v_nack boolean;
    v_halt boolean;
    v_waiting boolean;
    v_behind int[] := '{}';
BEGIN
    v_limited := fairlane.limited_queues(p_shard, p_partitions);
    PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_limited) ORDER BY q.id FOR UPDATE;
    SELECT bool_or(x.open_acks > 0) INTO v_waiting
    FROM (SELECT DISTINCT id FROM unnest(p_partitions) id ORDER BY id) i CROSS JOIN LATERAL (
        SELECT p.open_acks FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = i.id ORDER BY p.epoch DESC LIMIT 1
        FOR NO KEY UPDATE) x;
    v_now_limited := fairlane.limited_queues(p_shard, p_partitions);
    IF NOT v_now_limited <@ v_limited THEN
        RAISE EXCEPTION 'a queue got a max_size meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    t := coalesce(p_now, clock_timestamp());
    FOR i IN 1 .. cardinality(v_limited) LOOP
        v_before := v_before || fairlane.finished(p_shard, ARRAY(
            SELECT p.id FROM fairlane.partitions p
            WHERE p.shard = p_shard AND p.id = ANY (p_partitions) AND p.queue_id = v_limited[i]));
    END LOOP;

    IF v_waiting THEN
        SELECT coalesce(array_agg(a.i::int), '{}') INTO v_behind
        FROM unnest(p_partitions, p_groups) WITH ORDINALITY a(id, grp, i)
        JOIN fairlane.operation_lanes l ON l.shard = p_shard AND l.partition_id = a.id AND l.group_id = a.grp
        WHERE NOT l.passing;
        RETURN QUERY SELECT i, 'b'::"char", 0::bigint, 0::bigint, false, false, false FROM unnest(v_behind) i;
    END IF;

    FOR i IN 1 .. cardinality(p_partitions) LOOP
        CONTINUE WHEN i = ANY (v_behind);
        SELECT k.*, p.head, p.queue_id, p.boost INTO c
        FROM (SELECT x.* FROM fairlane.cursors x
              WHERE x.shard = p_shard AND x.partition_id = p_partitions[i] AND x.group_id = p_groups[i]
              ORDER BY x.epoch DESC LIMIT 1 FOR UPDATE) k
        CROSS JOIN LATERAL (
            SELECT x.* FROM fairlane.partitions x WHERE x.shard = p_shard AND x.id = k.partition_id
            ORDER BY x.epoch DESC LIMIT 1) p;
        IF FOUND AND c.queue_id IS DISTINCT FROM v_queue THEN
            SELECT q.id, q.options INTO v_queue, o FROM fairlane.queues q WHERE q.id = c.queue_id;
        END IF;
        IF NOT FOUND OR c.queue_id IS DISTINCT FROM v_queue THEN
            RETURN QUERY SELECT i, 'g'::"char", 0::bigint, 0::bigint, false, false, false;
            CONTINUE;
        END IF;
        v_live := c.lease IS NOT NULL AND c.ready_at > t;
        IF p_fenced[i] AND NOT (v_live AND c.lease = p_tokens[i]) THEN
            RETURN QUERY SELECT i, 'l'::"char", c.committed, c.committed, false, false,
                                c.last_lease IS NOT DISTINCT FROM p_tokens[i] AND p_nack[i] < 0 AND c.committed >= p_upto[i]
                                AND NOT i = ANY (p_bury_lane);
            CONTINUE;
        END IF;
        IF p_fenced[i] AND p_nack[i] < 0 AND NOT c.failing AND p_upto[i] > c.committed AND p_upto[i] <= c.lease_end
           AND NOT i = ANY (p_bury_lane) THEN
            -- As nearly always: a live lease, and nothing failed.
            UPDATE fairlane.cursors k
            SET committed = p_upto[i], epoch = k.epoch + 1,
                lease = CASE WHEN p_upto[i] >= c.lease_end THEN NULL ELSE k.lease END,
                last_lease = CASE WHEN p_upto[i] >= c.lease_end THEN k.lease ELSE k.last_lease END,
                ready_at = CASE WHEN p_upto[i] < c.lease_end THEN k.ready_at WHEN p_upto[i] < c.head THEN t - c.boost END
            WHERE k.shard = p_shard AND k.partition_id = c.partition_id AND k.group_id = c.group_id AND k.epoch = c.epoch;
            v_done[i] := true;
            v_from[i] := c.committed;
            RETURN QUERY SELECT i, 'o'::"char", c.committed, p_upto[i], false, p_upto[i] >= c.lease_end, false;
            CONTINUE;
        END IF;
        v_upto := greatest(c.committed, least(p_upto[i], CASE WHEN p_fenced[i] THEN c.lease_end ELSE c.head END,
                                              CASE WHEN p_nack[i] >= c.committed THEN p_nack[i] END));
        v_buried := 0;
        FOR b IN 1 .. cardinality(p_bury_lane) LOOP
            CONTINUE WHEN p_bury_lane[b] <> i OR p_bury_at[b] < c.committed OR p_bury_at[b] >= v_upto
                          OR fairlane.next_skip(p_shard, c.partition_id, c.group_id, p_bury_at[b]) = p_bury_at[b];
            PERFORM fairlane.bury(p_shard, c.queue_id, c.partition_id, c.group_id, p_bury_at[b], p_bury_error[b], t, 1);
            v_buried := v_buried + 1;
        END LOOP;
        v_dead := false;
        v_halt := false;
        v_sleep := 0;
        v_nack := p_nack[i] >= v_upto AND p_nack[i] < CASE WHEN p_fenced[i] THEN c.lease_end ELSE c.head END;
        IF v_nack AND p_charge[i] THEN
            INSERT INTO fairlane.failures AS f
                   (shard, partition_id, group_id, position, attempts, error, first_failed_at, failed_at)
            VALUES (p_shard, c.partition_id, c.group_id, p_nack[i], 1, p_errors[i], t, t)
            ON CONFLICT (shard, partition_id, group_id, position) DO UPDATE
            SET attempts = f.attempts + 1, error = excluded.error, failed_at = excluded.failed_at,
                history = fairlane.earlier(f.history, f.error, f.failed_at)
            RETURNING f.attempts INTO v_attempts;
            v_dead := v_attempts > (o ->> 'retry_limit')::int;
            IF v_dead AND (p_nack[i] > v_upto
                           OR fairlane.next_skip(p_shard, c.partition_id, c.group_id, p_nack[i]) = p_nack[i]) THEN
                -- Messages before it are still open: it falls when the cursor has reached it. Or it was taken out meanwhile.
                v_dead := false;
            ELSIF v_dead AND o ->> 'on_exhausted' IN ('block', 'park') THEN
                v_dead := false;
                v_halt := true;
            ELSIF v_dead THEN
                PERFORM fairlane.bury(p_shard, c.queue_id, c.partition_id, c.group_id, p_nack[i], p_errors[i], t);
                v_upto := p_nack[i] + 1;
                v_buried := v_buried + 1;
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
        IF v_upto > c.committed THEN
            DELETE FROM fairlane.failures f WHERE f.shard = p_shard AND f.partition_id = c.partition_id
                                              AND f.group_id = c.group_id AND f.position < v_upto;
            DELETE FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = c.partition_id
                                           AND x.position < v_upto AND x.group_id = c.group_id;
        END IF;
        -- A lease goes on while part of its batch is open; a sleep goes on while the cursor does not move.
        v_ready := CASE WHEN v_halt THEN fairlane.never()
                        WHEN v_nack AND v_sleep > 0 THEN CASE WHEN v_upto < c.head THEN t + make_interval(secs => v_sleep / 1000.0) END
                        WHEN v_nack THEN CASE WHEN v_upto < c.head THEN t - c.boost END
                        WHEN v_live AND v_upto < c.lease_end THEN c.ready_at
                        WHEN v_upto >= c.head THEN NULL
                        WHEN v_upto = c.committed THEN c.ready_at
                        ELSE t - c.boost END;
        UPDATE fairlane.cursors k
        SET committed = v_upto, dead = k.dead + v_buried, ready_at = v_ready,
            parked = k.parked OR v_halt AND o ->> 'on_exhausted' = 'park',
            lease = CASE WHEN v_nack OR v_upto >= c.lease_end THEN NULL ELSE c.lease END,
            last_lease = CASE WHEN v_live AND (v_nack OR v_upto >= c.lease_end) THEN c.lease ELSE c.last_lease END,
            failing = fairlane.obstacles(p_shard, c.partition_id, c.group_id, v_upto), epoch = k.epoch + 1
        WHERE k.shard = p_shard AND k.partition_id = c.partition_id AND k.group_id = c.group_id AND k.epoch = c.epoch;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'lane % changed while it was held', c.partition_id USING ERRCODE = 'serialization_failure';
        END IF;
        v_done[i] := true;
        v_from[i] := c.committed;
        RETURN QUERY SELECT i, 'o'::"char", c.committed, v_upto, v_dead,
                            v_live AND (v_nack OR v_upto >= c.lease_end), false;
    END LOOP;

    INSERT INTO fairlane.results AS r (shard, partition_id, group_id, position, result, created_at)
    SELECT p_shard, p_partitions[x.lane], p_groups[x.lane], x.at, x.result, t
    FROM unnest(p_result_lane, p_result_at, p_results) x(lane, at, result)
    WHERE v_done[x.lane] AND x.at >= v_from[x.lane] AND EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = p_partitions[x.lane]
                  AND k.group_id = p_groups[x.lane] AND k.committed > x.at)
    ON CONFLICT (shard, partition_id, group_id, position) DO UPDATE
    SET result = excluded.result, created_at = excluded.created_at;

    FOR i IN 1 .. cardinality(v_limited) LOOP
        v_upto := fairlane.finished(p_shard, ARRAY(
            SELECT p.id FROM fairlane.partitions p
            WHERE p.shard = p_shard AND p.id = ANY (p_partitions) AND p.queue_id = v_limited[i])) - v_before[i];
        UPDATE fairlane.queues q SET depth = q.depth - v_upto WHERE q.id = v_limited[i] AND v_upto > 0;
    END LOOP;
END $$;

-- The queues with a max_size among those of some partitions, by id.
CREATE OR REPLACE FUNCTION fairlane.limited_queues(p_shard int, p_partitions bigint[]) RETURNS bigint[]
LANGUAGE sql AS $$
    SELECT coalesce(array_agg(q.id ORDER BY q.id), '{}')
    FROM fairlane.queues q
    WHERE (q.options ->> 'max_size')::bigint > 0
      AND q.id IN (SELECT p.queue_id FROM unnest(p_partitions) i(id) CROSS JOIN LATERAL (
                       SELECT x.queue_id FROM fairlane.partitions x WHERE x.shard = p_shard AND x.id = i.id
                       ORDER BY x.epoch DESC LIMIT 1) p);
$$;
