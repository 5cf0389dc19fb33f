-- `pop` for an unordered queue, with the same arguments and rows. `o` has the queue's options, whose row the caller has locked if
-- it is limited. A lane serves one claim after another. Only a session without other locks waits for a lane, because a locked
-- lane is not empty.
CREATE OR REPLACE FUNCTION fairlane.pop_unordered(
    p_queue bigint, p_group bigint, p_tokens uuid[], p_batch int[], p_lanes int[], p_auto_ack boolean,
    p_lease_seconds int, p_partition bigint, p_from timestamptz, p_bytes_max bigint, p_forgiving boolean, p_now timestamptz,
    o jsonb
) RETURNS TABLE (claim int, partition_id bigint, name text, first bigint, upto bigint, attempts int, lease_ends_at bytea,
                 segment_first bigint, created_at bytea, checksum bigint, ends bytea, body bytea,
                 gone boolean, not_ready int, expired bigint, leases_lost bigint, dead_lettered bigint, popped_at bytea, next_at bytea,
                 scan_from timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_token uuid;
    t timestamptz := coalesce(p_now, clock_timestamp());
    t_end timestamptz := t + make_interval(secs => CASE WHEN p_lease_seconds > 0 THEN p_lease_seconds
                                                        ELSE (o ->> 'lease_seconds')::int END);
    t_next timestamptz;
    v_limited boolean := (o ->> 'max_size')::bigint > 0;
    v_retries int := (o ->> 'retry_limit')::int;
    v_ids bigint[] := ARRAY[p_partition];
    v_again boolean[] := ARRAY[true];   -- true if the lane may have due redeliveries
    v_seen timestamptz;
    v_claims int := CASE WHEN p_batch[1] = 0 THEN 0 ELSE cardinality(p_tokens) END;
    v_claim int := 1;
    v_batch int := p_batch[1];
    v_left int := p_lanes[1];
    v_bytes bigint := p_bytes_max;
    v_got boolean := false;      -- the claim has a lane
    v_has boolean := false;      -- the claim has messages
    v_took boolean;              -- something was taken from this lane
    v_due boolean;               -- more of this lane may be due again
    v_look int;
    v_fresh bigint;              -- first new position that this call takes
    v_full boolean;
    v_empty int := 0;
    v_front bigint;
    v_upto bigint;
    v_head bigint;
    v_failing boolean;
    v_committed bigint;
    v_ready timestamptz;
    v_dead int;
    v_freed bigint := 0;
    v_lost bigint := 0;
    v_died bigint := 0;
    f_first bigint[];            -- finished ranges of this lane
    f_upto bigint[];
    c record;
    p record;
    s record;
    l_claim int[] := '{}';       -- ranges taken
    l_partition bigint[] := '{}';
    l_name text[] := '{}';
    l_first bigint[] := '{}';
    l_upto bigint[] := '{}';
    l_attempts int[] := '{}';
    l_fresh boolean[] := '{}';
BEGIN
    IF p_partition = 0 THEN
        SELECT array_agg(y.id ORDER BY y.at, y.id), array_agg(y.again ORDER BY y.at, y.id), min(y.ready_at)
        INTO v_ids, v_again, v_seen
        FROM (SELECT x.id, min(x.at) AS at, min(x.ready_at) AS ready_at, bool_or(x.ready_at IS NULL) AS again FROM (
                  (SELECT k.partition_id AS id, k.ready_at AS at, k.ready_at FROM fairlane.cursors k
                   WHERE k.group_id = p_group AND k.ready_at <= t AND k.ready_at >= p_from
                   ORDER BY k.ready_at LIMIT least(1000, (SELECT sum(n) FROM unnest(p_lanes) n)))
                  UNION ALL
                  (SELECT f.partition_id, f.due_at, NULL FROM fairlane.failures f
                   WHERE f.group_id = p_group AND f.due_at <= t ORDER BY f.due_at LIMIT 1000)
                  UNION ALL
                  (SELECT m.partition_id, m.ends_at, NULL FROM fairlane.claims m
                   WHERE m.group_id = p_group AND m.ends_at <= t ORDER BY m.ends_at LIMIT 1000)) x
              GROUP BY x.id) y;
    END IF;
    <<rounds>>
    FOR v_round IN 1 .. 2 LOOP
        FOR i IN 1 .. coalesce(cardinality(v_ids), 0) LOOP
            EXIT rounds WHEN v_claim > v_claims;
            IF v_round = 1 AND p_partition = 0 THEN
                SELECT k.* INTO c FROM fairlane.cursors k
                WHERE k.partition_id = v_ids[i] AND k.group_id = p_group FOR UPDATE SKIP LOCKED;
            ELSE
                SELECT k.* INTO c FROM fairlane.cursors k
                WHERE k.partition_id = v_ids[i] AND k.group_id = p_group FOR UPDATE;
            END IF;
            CONTINUE WHEN NOT FOUND;
            v_got := true;
            SELECT x.head, x.start, x.name, x.message_bytes_max, x.paused_at, x.priority_lead INTO p FROM fairlane.partitions x
            WHERE x.id = c.partition_id;
            IF c.parked OR p.paused_at IS NOT NULL THEN
                UPDATE fairlane.cursors k SET ready_at = fairlane.never()
                WHERE k.partition_id = c.partition_id AND k.group_id = p_group AND k.ready_at <= t;
                CONTINUE;
            END IF;
            IF v_again[i] THEN
                IF NOT p_forgiving THEN
                    v_lost := v_lost + (SELECT count(DISTINCT x.token) FROM (
                        SELECT m.token FROM fairlane.claims m WHERE m.group_id = p_group
                           AND m.partition_id = c.partition_id AND m.ends_at <= t
                        UNION ALL
                        SELECT f.token FROM fairlane.failures f WHERE f.group_id = p_group
                           AND f.partition_id = c.partition_id AND f.token IS NOT NULL AND f.due_at <= t) x);
                END IF;
                PERFORM fairlane.return_claims(c.partition_id, p_group, NULL, p_forgiving, t);
            END IF;
            v_front := greatest(c.committed, c.claimed);
            v_failing := c.failing;
            v_dead := 0;
            v_due := v_again[i];
            v_fresh := NULL;
            f_first := '{}';
            f_upto := '{}';
            LOOP
                EXIT WHEN v_claim > v_claims;
                v_took := false;
                v_full := false;
                IF v_due THEN
                    v_due := false;
                    v_look := v_batch;
                    FOR s IN SELECT f.position, f.attempts, f.alone, coalesce(f.retry_limit, v_retries) AS retries FROM fairlane.failures f
                             WHERE f.partition_id = c.partition_id AND f.group_id = p_group
                               AND f.due_at <= t AND f.token IS NULL ORDER BY f.position LIMIT v_batch
                    LOOP
                        v_look := v_look - 1;
                        v_due := v_due OR v_look = 0 OR (s.alone AND v_has);
                        IF s.position < p.start THEN
                            DELETE FROM fairlane.failures f WHERE f.partition_id = c.partition_id
                                                              AND f.group_id = p_group AND f.position = s.position;
                            CONTINUE;
                        END IF;
                        IF s.attempts > s.retries THEN
                            PERFORM fairlane.dead_letter(p_queue, c.partition_id, p_group, s.position, NULL, t);
                            v_dead := v_dead + 1;
                            v_died := v_died + 1;
                            f_first := f_first || s.position;
                            f_upto := f_upto || s.position + 1;
                            CONTINUE;
                        END IF;
                        CONTINUE WHEN s.alone AND v_has;
                        IF p_auto_ack THEN
                            DELETE FROM fairlane.failures f WHERE f.partition_id = c.partition_id
                                                              AND f.group_id = p_group AND f.position = s.position;
                            f_first := f_first || s.position;
                            f_upto := f_upto || s.position + 1;
                        ELSE
                            v_token := p_tokens[v_claim];
                            UPDATE fairlane.failures f SET token = v_token, due_at = t_end
                            WHERE f.partition_id = c.partition_id AND f.group_id = p_group
                              AND f.position = s.position;
                        END IF;
                        l_claim := l_claim || v_claim;
                        l_partition := l_partition || c.partition_id;
                        l_name := l_name || p.name::text;
                        l_first := l_first || s.position;
                        l_upto := l_upto || s.position + 1;
                        l_attempts := l_attempts || s.attempts;
                        l_fresh := l_fresh || false;
                        v_batch := v_batch - 1;
                        v_bytes := v_bytes - p.message_bytes_max;
                        v_took := true;
                        v_has := true;
                        v_full := s.alone OR v_batch <= 0 OR v_bytes <= 0;
                        EXIT WHEN v_full;
                    END LOOP;
                    v_due := v_due OR v_full;
                END IF;
                IF NOT v_full AND v_failing THEN
                    -- Messages that are not delivered are skipped. Those that this group has dead-lettered are finished now.
                    WHILE v_front < p.head AND fairlane.next_skip(c.partition_id, p_group, v_front) = v_front LOOP
                        IF EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.partition_id = c.partition_id
                                   AND x.position = v_front AND x.group_id = p_group) THEN
                            f_first := f_first || v_front;
                            f_upto := f_upto || v_front + 1;
                        END IF;
                        v_front := v_front + 1;
                    END LOOP;
                    DELETE FROM fairlane.skips x WHERE x.partition_id = c.partition_id
                                                   AND x.group_id = p_group AND x.position < v_front;
                END IF;
                IF NOT v_full AND v_front < p.head THEN
                    v_upto := least(p.head, v_front + v_batch, CASE WHEN v_failing THEN
                                    fairlane.next_skip(c.partition_id, p_group, v_front) END);
                    IF (v_upto - v_front) * p.message_bytes_max > v_bytes THEN
                        v_upto := fairlane.batch_end(c.partition_id, v_front, v_upto, v_bytes);
                    END IF;
                    IF p_auto_ack THEN
                        f_first := f_first || v_front;
                        f_upto := f_upto || v_upto;
                    ELSE
                        v_fresh := coalesce(v_fresh, v_front);
                    END IF;
                    l_claim := l_claim || v_claim;
                    l_partition := l_partition || c.partition_id;
                    l_name := l_name || p.name::text;
                    l_first := l_first || v_front;
                    l_upto := l_upto || v_upto;
                    l_attempts := l_attempts || 0;
                    l_fresh := l_fresh || true;
                    v_batch := v_batch - (v_upto - v_front)::int;
                    v_bytes := v_bytes - (v_upto - v_front) * p.message_bytes_max;
                    v_front := v_upto;
                    v_took := true;
                    v_has := true;
                    v_full := v_batch <= 0 OR v_bytes <= 0;
                END IF;
                IF v_took AND NOT v_full THEN
                    v_left := v_left - 1;
                END IF;
                EXIT WHEN NOT v_full AND v_left > 0;
                v_claim := v_claim + 1;
                v_batch := p_batch[v_claim];
                v_left := p_lanes[v_claim];
                v_bytes := p_bytes_max;
                v_has := false;
            END LOOP;
            v_ready := t - p.priority_lead;
            IF v_front >= p.head THEN
                -- A lane may be declared empty only under the lock of its partition. Otherwise it stays ready and is checked
                -- again.
                v_head := NULL;
                IF c.ready_at IS NOT NULL THEN
                    SELECT x.head INTO v_head FROM fairlane.partitions x
                    WHERE x.id = c.partition_id FOR NO KEY UPDATE SKIP LOCKED;
                END IF;
                v_ready := CASE WHEN c.ready_at IS NULL OR v_head <= v_front THEN NULL ELSE t - p.priority_lead END;
                v_empty := v_empty + (v_ready IS NULL AND c.ready_at IS NOT NULL)::int;
            END IF;
            IF f_first <> '{}' AND v_limited THEN
                v_freed := v_freed + fairlane.count_freed(c.partition_id, p_group, f_first, f_upto);
            ELSIF f_first <> '{}' AND EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.id = p_queue
                                              AND (q.options ->> 'max_size')::bigint > 0) THEN
                RAISE EXCEPTION 'queue % got a max_size meanwhile', p_queue USING ERRCODE = 'serialization_failure';
            END IF;
            -- If nothing was finished, the cursor stays.
            v_committed := CASE WHEN v_again[i] OR v_failing OR p_auto_ack
                                THEN fairlane.watermark(c.partition_id, p_group, c.committed, coalesce(v_fresh, v_front)) END;
            v_failing := v_failing AND fairlane.next_skip(c.partition_id, p_group, v_front) IS NOT NULL;
            UPDATE fairlane.cursors k
            SET claimed = v_front, ready_at = v_ready, dead = k.dead + v_dead, committed = coalesce(v_committed, k.committed),
                failing = v_failing, leased_at = greatest(k.leased_at, t)  -- A time ahead of the clock stays for repair_wakes.
            WHERE k.partition_id = c.partition_id AND k.group_id = p_group;
            EXIT rounds WHEN v_round = 2;
        END LOOP;
        EXIT WHEN v_got;
    END LOOP;
    IF l_fresh <> '{}' AND NOT p_auto_ack THEN
        INSERT INTO fairlane.claims (partition_id, group_id, first_pos, upto, token, ends_at)
        SELECT l.id, p_group, l.first, l.upto, p_tokens[l.claim], t_end
        FROM unnest(l_claim, l_partition, l_first, l_upto, l_fresh) l(claim, id, first, upto, fresh) WHERE l.fresh;
    END IF;
    IF v_freed > 0 THEN
        UPDATE fairlane.queues q SET depth = q.depth - v_freed WHERE q.id = p_queue;
    END IF;

    RETURN QUERY
    SELECT l.claim, l.id, l.name, l.first, l.upto, l.attempts, timestamptz_send(t_end), g.first_pos,
           timestamptz_send(g.created_at), g.checksum, array_send(g.ends), g.body,
           NULL::boolean, NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::timestamptz
    FROM unnest(l_claim, l_partition, l_name, l_first, l_upto, l_attempts) l(claim, id, name, first, upto, attempts)
    CROSS JOIN LATERAL (
        SELECT x.first_pos, x.created_at, x.checksum, x.ends, x.body FROM fairlane.segments x
        WHERE x.partition_id = l.id AND x.first_pos < l.upto
          AND x.first_pos >= (SELECT max(y.first_pos) FROM fairlane.segments y
                              WHERE y.partition_id = l.id AND y.first_pos <= l.first)
        ORDER BY x.first_pos
    ) g;

    IF v_claim <= v_claims THEN
        t_next := least(
            (SELECT k.ready_at FROM fairlane.cursors k WHERE k.group_id = p_group AND k.ready_at > t
             AND k.ready_at < fairlane.never() AND p_partition IN (0, k.partition_id) ORDER BY k.ready_at LIMIT 1),
            (SELECT f.due_at FROM fairlane.failures f WHERE f.group_id = p_group AND f.due_at > t
             AND p_partition IN (0, f.partition_id) ORDER BY f.due_at LIMIT 1),
            (SELECT m.ends_at FROM fairlane.claims m WHERE m.group_id = p_group AND m.ends_at > t
             AND p_partition IN (0, m.partition_id) ORDER BY m.ends_at LIMIT 1));
    END IF;
    RETURN QUERY SELECT * FROM fairlane.pop_summary(false, v_empty, 0, v_lost, v_died, t, t_next, coalesce(v_seen, t));
END $$;

-- The summary row of a pop.
CREATE OR REPLACE FUNCTION fairlane.pop_summary(
    p_gone boolean, p_not_ready int, p_expired bigint, p_leases_lost bigint, p_dead_lettered bigint, p_popped_at timestamptz,
    p_next_at timestamptz, p_scan_from timestamptz
) RETURNS TABLE (claim int, partition_id bigint, name text, first bigint, upto bigint, attempts int, lease_ends_at bytea,
                 segment_first bigint, created_at bytea, checksum bigint, ends bytea, body bytea,
                 gone boolean, not_ready int, expired bigint, leases_lost bigint, dead_lettered bigint, popped_at bytea, next_at bytea,
                 scan_from timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT NULL::int, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::int, NULL::bytea,
           NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea, NULL::bytea,
           p_gone, p_not_ready, p_expired, p_leases_lost, p_dead_lettered, timestamptz_send(p_popped_at), timestamptz_send(p_next_at),
           p_scan_from;
$$;
