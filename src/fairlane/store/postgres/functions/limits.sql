-- Limits of what a group holds and gets: `max_running` messages at a time, and a `rate`. Pops of a limited group take its row in
-- `groups`, one after another on all brokers, and then count.

-- The seconds of a rate such as 10/1m.
CREATE OR REPLACE FUNCTION fairlane.rate_seconds(p_rate text) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(nullif(m[1], ''), '1')::int * (ARRAY[1, 60, 3600, 86400])[strpos('smhd', m[2])]
    FROM regexp_match(p_rate, '/([0-9]*)([smhd])$') m;
$$;

-- The messages that consumers of a group hold, and when the first of their leases ends.
CREATE OR REPLACE FUNCTION fairlane.held(p_group bigint, t timestamptz, OUT running bigint, OUT ends_at timestamptz)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT coalesce(sum(x.n), 0)::bigint, min(x.ends_at) FROM (
        SELECT k.lease_end - k.committed - CASE WHEN k.failing THEN (
                   SELECT count(*) FROM fairlane.skips s WHERE s.partition_id = k.partition_id AND s.position >= k.committed
                   AND s.position < k.lease_end AND s.group_id IN (0, k.group_id)) ELSE 0 END AS n, k.ready_at AS ends_at
        FROM fairlane.cursors k
        WHERE k.group_id = p_group AND k.ready_at > t AND k.ready_at < fairlane.never() AND k.lease IS NOT NULL
        UNION ALL
        SELECT c.upto - c.first_pos, c.ends_at FROM fairlane.claims c WHERE c.group_id = p_group AND c.ends_at > t
        UNION ALL
        SELECT 1, f.due_at FROM fairlane.failures f WHERE f.group_id = p_group AND f.due_at > t AND f.token IS NOT NULL) x;
$$;

-- The number of messages that a group may get now under the options `o`, and when it may get more if that is none. `limited_by` is
-- then max_running or rate. `running` and `started` are what these count.
CREATE OR REPLACE FUNCTION fairlane.allowance(
    p_group bigint, o jsonb, t timestamptz,
    OUT allowed bigint, OUT until timestamptz, OUT limited_by text, OUT running bigint, OUT started bigint
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_rate bigint;
    v_window interval;
    v_ends_at timestamptz;
BEGIN
    IF (o ->> 'max_running')::bigint > 0 THEN
        SELECT h.running, h.ends_at INTO running, v_ends_at FROM fairlane.held(p_group, t) h;
        allowed := (o ->> 'max_running')::bigint - running;
        IF allowed <= 0 THEN
            limited_by := 'max_running';
            until := v_ends_at;
        END IF;
    END IF;
    IF o ->> 'rate' <> '' THEN
        v_rate := split_part(o ->> 'rate', '/', 1)::bigint;
        v_window := make_interval(secs => fairlane.rate_seconds(o ->> 'rate'));
        started := (SELECT coalesce(sum(s.n), 0) FROM fairlane.starts s WHERE s.group_id = p_group AND s.at > t - v_window);
        allowed := least(allowed, v_rate - started);
        IF started >= v_rate THEN
            limited_by := coalesce(limited_by, 'rate');
            -- The group gets more when so many of the earlier ones are out of the window that fewer than the rate are left.
            until := greatest(until, (
                SELECT s.at + v_window FROM (
                    SELECT x.at, sum(x.n) OVER (ORDER BY x.at) AS n FROM fairlane.starts x
                    WHERE x.group_id = p_group AND x.at > t - v_window) s
                WHERE started - s.n < v_rate ORDER BY s.at LIMIT 1));
        END IF;
    END IF;
END $$;

-- `pop` for a group with limits: claim by claim, each no larger than what is allowed then.
CREATE OR REPLACE FUNCTION fairlane.pop_limited(
    p_queue bigint, p_group bigint, p_tokens uuid[], p_batch int[], p_lanes int[], p_auto_ack boolean,
    p_lease_seconds int, p_partition bigint, p_from timestamptz, p_bytes_max bigint, p_forgiving boolean, p_waits boolean,
    p_now timestamptz, o jsonb
) RETURNS TABLE (claim int, partition_id bigint, name text, first bigint, upto bigint, attempts int, lease_ends_at bytea,
                 segment_first bigint, created_at bytea, checksum bigint, ends bytea, body bytea,
                 gone boolean, not_ready int, expired bigint, leases_lost bigint, dead_lettered bigint, popped_at bytea, next_at bytea,
                 scan_from timestamptz)
LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    r record;
    a record;
    t timestamptz;
    t_next timestamptz;
    v_taken bigint;
    v_last_partition bigint;
    v_last_first bigint;
    v_not_ready int := 0;
    v_expired bigint := 0;
    v_lost bigint := 0;
    v_dead bigint := 0;
    v_from timestamptz;
    v_next bytea;
BEGIN
    IF (o ->> 'max_size')::bigint > 0 THEN
        PERFORM 1 FROM fairlane.queues q WHERE q.id = p_queue FOR UPDATE;
    END IF;
    PERFORM 1 FROM fairlane.groups g WHERE g.id = p_group FOR NO KEY UPDATE;
    t := coalesce(p_now, clock_timestamp());
    SELECT * INTO a FROM fairlane.allowance(p_group, o, t);
    FOR i IN 1 .. cardinality(p_tokens) LOOP
        EXIT WHEN a.allowed <= 0;
        v_taken := 0;
        FOR r IN SELECT * FROM fairlane.pop(p_queue, p_group, p_tokens[i:i], ARRAY[least(p_batch[i], a.allowed)::int], p_lanes[i:i], p_auto_ack,
                                     p_lease_seconds, p_partition, p_from, p_bytes_max, p_forgiving, p_waits, t, true)
        LOOP
            IF r.claim IS NULL THEN
                v_not_ready := v_not_ready + r.not_ready;
                v_expired := v_expired + r.expired;
                v_lost := v_lost + r.leases_lost;
                v_dead := v_dead + r.dead_lettered;
                v_from := least(v_from, r.scan_from);
                v_next := r.next_at;
                CONTINUE;
            END IF;
            IF (r.partition_id, r.first) IS DISTINCT FROM (v_last_partition, v_last_first) THEN
                v_taken := v_taken + r.upto - r.first;
            END IF;
            v_last_partition := r.partition_id;
            v_last_first := r.first;
            RETURN QUERY SELECT i, r.partition_id, r.name, r.first, r.upto, r.attempts, r.lease_ends_at, r.segment_first, r.created_at,
                r.checksum, r.ends, r.body, NULL::boolean, NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea,
                NULL::timestamptz;
        END LOOP;
        v_last_partition := NULL;
        a.allowed := a.allowed - v_taken;
        IF v_taken > 0 AND o ->> 'rate' <> '' THEN
            INSERT INTO fairlane.starts AS s (group_id, at, n) VALUES (p_group, t, v_taken)
            ON CONFLICT (group_id, at) DO UPDATE SET n = s.n + excluded.n;
        END IF;
        EXIT WHEN v_taken = 0;
    END LOOP;
    IF o ->> 'rate' <> '' THEN
        DELETE FROM fairlane.starts s
        WHERE s.group_id = p_group AND s.at <= t - make_interval(secs => fairlane.rate_seconds(o ->> 'rate'));
    END IF;
    IF a.allowed <= 0 THEN
        -- An ack that ends no lease wakes nobody, so that polls look again within a second.
        SELECT * INTO a FROM fairlane.allowance(p_group, o, t);
        t_next := CASE WHEN a.limited_by = 'max_running' THEN least(a.until, t + interval '1 second') ELSE a.until END;
        v_next := timestamptz_send(t_next);
    END IF;
    RETURN QUERY SELECT s.claim, s.partition_id, s.name, s.first, s.upto, s.attempts, s.lease_ends_at, s.segment_first, s.created_at, s.checksum,
        s.ends, s.body, s.gone, s.not_ready, s.expired, s.leases_lost, s.dead_lettered, s.popped_at, v_next, s.scan_from
    FROM fairlane.pop_summary(false, v_not_ready, v_expired, v_lost, v_dead, t, NULL, v_from) s;
END $$;
