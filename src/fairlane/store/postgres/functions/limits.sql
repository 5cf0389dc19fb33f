-- Limits of what a group holds and gets: `max_running` messages at a time, and a `rate`, for all messages and for those of each
-- key. Pops of a limited group take its row in `groups`, one after another on all brokers, and then count.

-- True if a queue with the options `o` has limits.
CREATE OR REPLACE FUNCTION fairlane.is_limited(o jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT o @? '$.max_running ? (@ > 0)' OR o ->> 'rate' <> '' OR fairlane.limits_keys(o);
$$;

CREATE OR REPLACE FUNCTION fairlane.limits_keys(o jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce((o ->> 'max_running_per_key')::bigint > 0 OR o ->> 'rate_per_key' <> '', false);
$$;

-- The key by which the messages of a partition are limited.
CREATE OR REPLACE FUNCTION fairlane.limit_key(p_name text, o jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN o ->> 'ordering' = 'unordered' THEN regexp_replace(p_name, '![1-9]$', '') ELSE p_name END;
$$;

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

-- The messages of a key of an unordered queue that consumers of a group hold, and when the first of their leases ends. A key has a
-- partition for each priority.
CREATE OR REPLACE FUNCTION fairlane.held_of_key(p_group bigint, p_key text, t timestamptz, OUT running bigint, OUT ends_at timestamptz)
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    WITH mine AS MATERIALIZED (
        SELECT p.id FROM fairlane.groups g JOIN fairlane.partitions p ON p.queue_id = g.queue_id
        WHERE g.id = p_group AND p.name IN (SELECT p_key || n.suffix FROM unnest('{"",!1,!2,!3,!4,!5,!6,!7,!8,!9}'::text[]) n(suffix)))
    SELECT coalesce(sum(x.n), 0)::bigint, min(x.ends_at) FROM (
        SELECT c.upto - c.first_pos AS n, c.ends_at FROM mine m
        JOIN fairlane.claims c ON c.partition_id = m.id AND c.group_id = p_group AND c.ends_at > t
        UNION ALL
        SELECT 1, f.due_at FROM mine m
        JOIN fairlane.failures f ON f.partition_id = m.id AND f.group_id = p_group AND f.due_at > t AND f.token IS NOT NULL) x;
$$;

-- The number of messages that a group may get now under the options `o`, and if that is 0, when it may get more. `limited_by` is
-- then the option. `running` and `started` are what these count. With p_key, of this key only.
CREATE OR REPLACE FUNCTION fairlane.allowance(
    p_group bigint, p_key text, o jsonb, t timestamptz,
    OUT allowed bigint, OUT until timestamptz, OUT limited_by text, OUT running bigint, OUT started bigint
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_suffix text := CASE WHEN p_key = '' THEN '' ELSE '_per_key' END;
    v_most bigint := (o ->> ('max_running' || v_suffix))::bigint;
    v_text text := o ->> ('rate' || v_suffix);
    v_rate bigint;
    v_window interval;
    v_ends_at timestamptz;
BEGIN
    IF v_most > 0 THEN
        IF p_key = '' THEN
            SELECT h.running, h.ends_at INTO running, v_ends_at FROM fairlane.held(p_group, t) h;
        ELSE
            SELECT h.running, h.ends_at INTO running, v_ends_at FROM fairlane.held_of_key(p_group, p_key, t) h;
        END IF;
        allowed := v_most - running;
        IF allowed <= 0 THEN
            limited_by := 'max_running' || v_suffix;
            until := v_ends_at;
        END IF;
    END IF;
    IF v_text <> '' THEN
        v_rate := split_part(v_text, '/', 1)::bigint;
        v_window := make_interval(secs => fairlane.rate_seconds(v_text));
        started := (SELECT coalesce(sum(s.n), 0) FROM fairlane.starts s
                    WHERE s.group_id = p_group AND s.key = p_key AND s.at > t - v_window);
        allowed := least(allowed, v_rate - started);
        IF started >= v_rate THEN
            limited_by := 'rate' || v_suffix;
            -- The next message is allowed once fewer messages than the rate are left in the window.
            until := (SELECT s.at + v_window FROM (
                          SELECT x.at, sum(x.n) OVER (ORDER BY x.at) AS n FROM fairlane.starts x
                          WHERE x.group_id = p_group AND x.key = p_key AND x.at > t - v_window) s
                      WHERE started - s.n < v_rate ORDER BY s.at LIMIT 1);
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
    v_batch int;
    v_keys boolean := fairlane.limits_keys(o);
BEGIN
    IF (o ->> 'max_size')::bigint > 0 THEN
        PERFORM 1 FROM fairlane.queues q WHERE q.id = p_queue FOR UPDATE;
    END IF;
    PERFORM 1 FROM fairlane.groups g WHERE g.id = p_group FOR NO KEY UPDATE;
    t := coalesce(p_now, clock_timestamp());
    PERFORM fairlane.correct_starts(p_group, t) WHERE o ->> 'rate' <> '' OR o ->> 'rate_per_key' <> '';
    SELECT * INTO a FROM fairlane.allowance(p_group, '', o, t);
    FOR i IN 1 .. cardinality(p_tokens) LOOP
        EXIT WHEN a.allowed <= 0;
        v_taken := 0;
        v_batch := least(p_batch[i], a.allowed);
        FOR r IN SELECT * FROM fairlane.pop(p_queue, p_group, p_tokens[i:i], ARRAY[v_batch], p_lanes[i:i], p_auto_ack,
                                     p_lease_seconds, p_partition, p_from, p_bytes_max, p_forgiving, p_waits, t, true) WHERE NOT v_keys
                 UNION ALL
                 SELECT * FROM fairlane.pop_keys(p_queue, p_group, p_tokens[i], v_batch, p_lanes[i], p_auto_ack,
                                     p_lease_seconds, p_partition, p_bytes_max, p_forgiving, i = 1, t, o) WHERE v_keys
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
            PERFORM fairlane.note_start(p_group, '', t, v_taken);
        END IF;
        EXIT WHEN v_taken = 0;
    END LOOP;
    IF o ->> 'rate' <> '' OR o ->> 'rate_per_key' <> '' THEN
        DELETE FROM fairlane.starts s
        WHERE s.group_id = p_group AND s.at <= t - make_interval(
            secs => greatest(fairlane.rate_seconds(o ->> 'rate'), fairlane.rate_seconds(o ->> 'rate_per_key')));
    END IF;
    IF a.allowed <= 0 THEN
        -- An ack that ends no lease wakes no poll, so polls retry within a second.
        SELECT * INTO a FROM fairlane.allowance(p_group, '', o, t);
        t_next := CASE WHEN a.limited_by = 'max_running' THEN least(a.until, t + interval '1 second') ELSE a.until END;
        v_next := timestamptz_send(t_next);
    END IF;
    RETURN QUERY SELECT s.claim, s.partition_id, s.name, s.first, s.upto, s.attempts, s.lease_ends_at, s.segment_first, s.created_at, s.checksum,
        s.ends, s.body, s.gone, s.not_ready, s.expired, s.leases_lost, s.dead_lettered, s.popped_at, v_next, s.scan_from
    FROM fairlane.pop_summary(false, v_not_ready, v_expired, v_lost, v_dead, t, NULL, v_from) s;
END $$;
