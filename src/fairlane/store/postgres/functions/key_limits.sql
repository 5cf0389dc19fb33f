-- Pops within the limits of each key. The caller holds the row of the group.

CREATE OR REPLACE FUNCTION fairlane.note_start(p_group bigint, p_key text, t timestamptz, p_n bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO fairlane.starts AS s (group_id, key, at, n) VALUES (p_group, p_key, t, p_n)
    ON CONFLICT (group_id, key, at) DO UPDATE SET n = s.n + excluded.n;
$$;

-- Counts deliveries of a moment when the clock was ahead as deliveries of now. They would count until the clock gets there.
CREATE OR REPLACE FUNCTION fairlane.correct_starts(p_group bigint, t timestamptz) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_keys text[];
    v_n bigint[];
BEGIN
    SELECT array_agg(s.key), array_agg(s.n) INTO v_keys, v_n FROM fairlane.starts s WHERE s.group_id = p_group AND s.at > t;
    IF v_keys IS NOT NULL THEN
        DELETE FROM fairlane.starts s WHERE s.group_id = p_group AND s.at > t;
        INSERT INTO fairlane.starts AS s (group_id, key, at, n)
        SELECT p_group, u.key, t, sum(u.n) FROM unnest(v_keys, v_n) u(key, n) GROUP BY u.key
        ON CONFLICT (group_id, key, at) DO UPDATE SET n = s.n + excluded.n;
    END IF;
END $$;

-- The partitions whose keys have reached `max_running_per_key` in a group.
CREATE OR REPLACE FUNCTION fairlane.full_lanes(p_queue bigint, p_group bigint, o jsonb, t timestamptz) RETURNS bigint[]
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT coalesce(array_agg(f.id), '{}') FROM (
        SELECT fairlane.limit_key(p.name, o) AS key FROM (
            SELECT c.partition_id, c.upto - c.first_pos AS n FROM fairlane.claims c WHERE c.group_id = p_group AND c.ends_at > t
            UNION ALL
            SELECT f.partition_id, 1 FROM fairlane.failures f
            WHERE f.group_id = p_group AND f.due_at > t AND f.token IS NOT NULL) h
        JOIN fairlane.partitions p ON p.id = h.partition_id
        GROUP BY 1 HAVING sum(h.n) >= (o ->> 'max_running_per_key')::bigint) k
    CROSS JOIN unnest('{"",!1,!2,!3,!4,!5,!6,!7,!8,!9}'::text[]) n(suffix)
    JOIN fairlane.partitions f ON f.queue_id = p_queue AND f.name = k.key || n.suffix;
$$;

-- Up to 1000 lanes that may have something to deliver, longest-ready first, except those of p_full.
CREATE OR REPLACE FUNCTION fairlane.lanes_to_look_at(p_group bigint, p_partition bigint, p_full bigint[], t timestamptz)
RETURNS TABLE (id bigint, name text)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT p.id, p.name FROM (
        SELECT x.id, min(x.at) AS at FROM (
            (SELECT k.partition_id AS id, k.ready_at AS at FROM fairlane.cursors k
             WHERE p_partition = 0 AND k.group_id = p_group AND k.ready_at <= t AND k.partition_id <> ALL (p_full)
             ORDER BY k.ready_at LIMIT 1000)
            UNION ALL
            (SELECT f.partition_id, f.due_at FROM fairlane.failures f
             WHERE p_partition = 0 AND f.group_id = p_group AND f.due_at <= t AND f.partition_id <> ALL (p_full)
             ORDER BY f.due_at LIMIT 1000)
            UNION ALL
            (SELECT m.partition_id, m.ends_at FROM fairlane.claims m
             WHERE p_partition = 0 AND m.group_id = p_group AND m.ends_at <= t AND m.partition_id <> ALL (p_full)
             ORDER BY m.ends_at LIMIT 1000)
            UNION ALL
            SELECT p_partition, t WHERE p_partition <> 0) x
        GROUP BY x.id ORDER BY 2, 1 LIMIT 1000) l
    CROSS JOIN LATERAL (SELECT y.id, y.name FROM fairlane.partitions y WHERE y.id = l.id ORDER BY y.epoch DESC LIMIT 1) p
    ORDER BY l.at, l.id;
$$;

-- `pop` for one claim within the limits of each key: lane by lane, each no larger than its key allows. A lane of a key at its rate
-- sleeps until the rate allows more, and its retries with it. An expired lease stays: it is charged when its messages are delivered
-- again.
CREATE OR REPLACE FUNCTION fairlane.pop_keys(
    p_queue bigint, p_group bigint, p_token uuid, p_batch int, p_lanes int, p_auto_ack boolean, p_lease_seconds int,
    p_partition bigint, p_bytes_max bigint, p_forgiving boolean,
    p_waits boolean,       -- the session holds no lanes, so that it may wait for one
    t timestamptz, o jsonb
) RETURNS TABLE (claim int, partition_id bigint, name text, first bigint, upto bigint, attempts int, lease_ends_at bytea,
                 segment_first bigint, created_at bytea, checksum bigint, ends bytea, body bytea,
                 gone boolean, not_ready int, expired bigint, leases_lost bigint, dead_lettered bigint, popped_at bytea, next_at bytea,
                 scan_from timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    c record;
    a record;
    r record;
    v_key text;
    v_full bigint[] := '{}';
    v_batch int := p_batch;
    v_left int := p_lanes;
    v_bytes bigint := p_bytes_max;
    v_waits boolean := p_waits AND o ->> 'ordering' = 'unordered';
    v_taken bigint;
    v_last bigint;
    v_looked int := 0;
    v_not_ready int := 0;
    v_expired bigint := 0;
    v_lost bigint := 0;
    v_dead bigint := 0;
    v_next timestamptz;
BEGIN
    IF (o ->> 'max_running_per_key')::bigint > 0 AND p_partition = 0 THEN
        v_full := fairlane.full_lanes(p_queue, p_group, o, t);
        -- An ack that ends no lease wakes no poll, so polls retry within a second.
        v_next := CASE WHEN v_full <> '{}' THEN t + interval '1 second' END;
    END IF;
    FOR c IN SELECT * FROM fairlane.lanes_to_look_at(p_group, p_partition, v_full, t) LOOP
        EXIT WHEN v_batch <= 0 OR v_left <= 0 OR v_bytes <= 0;
        v_looked := v_looked + 1;
        -- A session that holds lanes never waits for another one.
        IF v_waits THEN
            PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = c.id AND k.group_id = p_group FOR UPDATE;
        ELSE
            PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = c.id AND k.group_id = p_group FOR UPDATE SKIP LOCKED;
        END IF;
        CONTINUE WHEN NOT FOUND;
        v_waits := false;
        v_key := fairlane.limit_key(c.name, o);
        SELECT * INTO a FROM fairlane.allowance(p_group, v_key, o, t);
        IF a.allowed <= 0 THEN
            IF a.limited_by = 'rate_per_key' THEN
                UPDATE fairlane.cursors k SET ready_at = a.until
                WHERE k.partition_id = c.id AND k.group_id = p_group AND k.ready_at <= t AND k.lease IS NULL;
                UPDATE fairlane.failures f SET due_at = a.until
                WHERE f.partition_id = c.id AND f.group_id = p_group AND f.due_at <= t AND f.token IS NULL;
                v_next := least(v_next, a.until);
            ELSE
                v_next := least(v_next, a.until, t + interval '1 second');
            END IF;
            CONTINUE;
        END IF;
        v_taken := 0;
        v_last := NULL;
        FOR r IN SELECT * FROM fairlane.pop(p_queue, p_group, ARRAY[p_token], ARRAY[least(v_batch, a.allowed)::int], '{1}', p_auto_ack,
                                     p_lease_seconds, c.id, '-infinity', v_bytes, p_forgiving, false, t, true)
        LOOP
            IF r.claim IS NULL THEN
                v_not_ready := v_not_ready + r.not_ready;
                v_expired := v_expired + r.expired;
                v_lost := v_lost + r.leases_lost;
                v_dead := v_dead + r.dead_lettered;
                CONTINUE;
            END IF;
            v_taken := v_taken + CASE WHEN r.first IS DISTINCT FROM v_last THEN r.upto - r.first ELSE 0 END;
            v_bytes := v_bytes - length(r.body);
            v_last := r.first;
            RETURN QUERY SELECT r.claim, r.partition_id, r.name, r.first, r.upto, r.attempts, r.lease_ends_at, r.segment_first, r.created_at,
                r.checksum, r.ends, r.body, r.gone, r.not_ready, r.expired, r.leases_lost, r.dead_lettered, r.popped_at, r.next_at,
                r.scan_from;
        END LOOP;
        IF v_taken > 0 AND o ->> 'rate_per_key' <> '' THEN
            PERFORM fairlane.note_start(p_group, v_key, t, v_taken);
        END IF;
        v_batch := v_batch - v_taken;
        v_left := v_left - (v_taken > 0)::int;
    END LOOP;
    IF v_looked = 1000 AND v_batch = p_batch THEN
        v_not_ready := v_not_ready + 1;  -- there may be more lanes behind those that sleep now
    END IF;
    v_next := least(v_next,
        (SELECT k.ready_at FROM fairlane.cursors k WHERE k.group_id = p_group AND k.ready_at > t
         AND k.ready_at < fairlane.never() AND p_partition IN (0, k.partition_id) ORDER BY k.ready_at LIMIT 1),
        (SELECT f.due_at FROM fairlane.failures f WHERE f.group_id = p_group AND f.due_at > t
         AND p_partition IN (0, f.partition_id) ORDER BY f.due_at LIMIT 1),
        (SELECT m.ends_at FROM fairlane.claims m WHERE m.group_id = p_group AND m.ends_at > t
         AND p_partition IN (0, m.partition_id) ORDER BY m.ends_at LIMIT 1));
    RETURN QUERY SELECT * FROM fairlane.pop_summary(false, v_not_ready, v_expired, v_lost, v_dead, t, v_next, NULL);
END $$;
