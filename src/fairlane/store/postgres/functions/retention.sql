-- Messages of one partition that some counting group has not finished, or all retained ones without a group.
CREATE OR REPLACE FUNCTION fairlane.open_messages(p_partition bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT p.head - m.done - (SELECT count(*) FROM fairlane.skips s
                              WHERE s.partition_id = p_partition AND s.position >= m.done AND s.group_id = 0)
                  + CASE WHEN m.unordered THEN fairlane.in_flight(p_partition, m.done) ELSE 0 END
    FROM fairlane.partitions p
    CROSS JOIN LATERAL (SELECT coalesce(min(greatest(c.committed, c.claimed)), p.start) AS done, bool_or(c.claimed > 0) AS unordered
                        FROM fairlane.counting c WHERE c.partition_id = p_partition) m
    WHERE p.id = p_partition;
$$;

-- Adds to the history of a queue and of a partition.
CREATE OR REPLACE FUNCTION fairlane.record_expiry(
    p_queue bigint, p_partition text, p_rule text, p_messages bigint, p_unread bigint, p_now timestamptz
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO fairlane.retention_minutes AS h (queue_id, at, rule, messages, unread)
    VALUES (p_queue, date_trunc('minute', p_now), p_rule, p_messages, p_unread)
    ON CONFLICT (queue_id, at, rule) DO UPDATE
    SET messages = h.messages + excluded.messages, unread = h.unread + excluded.unread;
    INSERT INTO fairlane.retention_hours AS h (queue_id, partition_name, at, rule, messages, unread)
    VALUES (p_queue, p_partition, date_trunc('hour', p_now), p_rule, p_messages, p_unread)
    ON CONFLICT (queue_id, partition_name, at, rule) DO UPDATE
    SET messages = h.messages + excluded.messages, unread = h.unread + excluded.unread;
$$;

-- Moves the start of one partition, locked by the caller with its cursors, to a position, and with it the cursors before it.
CREATE OR REPLACE FUNCTION fairlane.forget_below(p_partition bigint, p_upto bigint, p_head bigint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c record;
    v_committed bigint;
    v_failing boolean;
BEGIN
    -- Messages that a lane never delivered expire, and in an unordered queue delivered ones that are still open.
    UPDATE fairlane.cursors k
    SET expired = k.expired + greatest(0, p_upto - greatest(k.committed, k.claimed)) - (
            SELECT count(*) FROM fairlane.skips x WHERE x.partition_id = p_partition
            AND x.position >= greatest(k.committed, k.claimed) AND x.position < p_upto AND x.group_id IN (0, k.group_id))
        + CASE WHEN k.claimed = 0 THEN 0 ELSE (
            SELECT coalesce(sum(least(c.upto, p_upto) - c.first_pos), 0) FROM fairlane.claims c
            WHERE c.partition_id = p_partition AND c.group_id = k.group_id AND c.first_pos < p_upto) + (
            SELECT count(*) FROM fairlane.failures f WHERE f.partition_id = p_partition
            AND f.group_id = k.group_id AND f.position < p_upto AND f.due_at IS NOT NULL) END
    WHERE k.partition_id = p_partition AND k.committed < p_upto;
    -- Parts of fan-ins that are open: afterwards their messages look as if they were finished.
    UPDATE fairlane.fan_in_parts x SET status = 'deleted', ended_at = p_now
    WHERE x.partition_id = p_partition AND x.position < p_upto AND x.status IS NULL AND EXISTS (
        SELECT 1 FROM fairlane.cursors k JOIN fairlane.groups g ON g.id = k.group_id
        WHERE k.partition_id = p_partition AND g.name = x.group_name AND k.committed <= x.position
          AND NOT EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = p_partition
                          AND s.position = x.position AND s.group_id = k.group_id)
          AND (x.position >= k.claimed
               OR EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = p_partition AND c.group_id = k.group_id
                          AND c.first_pos <= x.position AND c.upto > x.position)
               OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = p_partition
                          AND f.group_id = k.group_id AND f.position = x.position)));
    DELETE FROM fairlane.claims c WHERE c.partition_id = p_partition AND c.upto <= p_upto;
    UPDATE fairlane.claims c SET first_pos = p_upto
    WHERE c.partition_id = p_partition AND c.first_pos < p_upto;
    DELETE FROM fairlane.failures f WHERE f.partition_id = p_partition AND f.position < p_upto;
    -- Deleted messages stay marked until their segment is gone, because their ids are not remembered.
    DELETE FROM fairlane.skips x
    WHERE x.partition_id = p_partition AND x.position < p_upto AND x.group_id <> 0;
    FOR c IN SELECT k.group_id, k.claimed FROM fairlane.cursors k WHERE k.partition_id = p_partition AND k.committed < p_upto LOOP
        v_committed := fairlane.watermark(p_partition, c.group_id, p_upto, greatest(p_upto, c.claimed));
        v_failing := fairlane.has_obstacles(p_partition, c.group_id, p_upto);
        UPDATE fairlane.cursors k
        SET committed = v_committed, lease = NULL, ready_at = CASE WHEN p_upto < p_head THEN p_now END, failing = v_failing
        WHERE k.partition_id = p_partition AND k.group_id = c.group_id;
    END LOOP;
    UPDATE fairlane.partitions p SET start = p_upto WHERE p.id = p_partition;
    INSERT INTO fairlane.trims (partition_id) VALUES (p_partition) ON CONFLICT DO NOTHING;
END $$;

-- Removes an empty partition with its data. False if it is still needed. The caller has locked it.
CREATE OR REPLACE FUNCTION fairlane.drop_partition(p_partition bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_keys bigint;
BEGIN
    IF EXISTS (SELECT 1 FROM fairlane.dead_letters d WHERE d.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.stream_state s WHERE s.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.partitions p WHERE p.id = p_partition AND p.paused_at IS NOT NULL)
       OR EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = p_partition AND k.parked)
       OR EXISTS (SELECT 1 FROM fairlane.operation_backlogs o WHERE o.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.scheduled_segments x WHERE x.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.deleted_ids d WHERE d.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.segments s WHERE s.partition_id = p_partition) THEN
        RETURN false;
    END IF;
    -- There may be very many ids. The rest is removed when the partition is checked again.
    DELETE FROM fairlane.message_keys k
    WHERE k.partition_id = p_partition AND k.key = ANY (ARRAY(
        SELECT m.key FROM fairlane.message_keys m WHERE m.partition_id = p_partition LIMIT 5000));
    GET DIAGNOSTICS v_keys = ROW_COUNT;
    IF v_keys = 5000 THEN
        RETURN false;
    END IF;
    DELETE FROM fairlane.cursors x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.failures x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.skips x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.results x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.cancellations x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.cancelled_ids x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.progress x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.unique_keys x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.traced x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.traces x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.trace_names x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.trims x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.expiries x WHERE x.partition_id = p_partition;
    DELETE FROM fairlane.partitions x WHERE x.id = p_partition;
    RETURN true;
END $$;

-- Checks due partitions and moves their start past messages that a rule covers. The rows of the log are removed later, without a
-- lock. Returns one row per partition and rule that deleted something, then one row in which only `checked` is set: the number of due
-- partitions.
CREATE OR REPLACE FUNCTION fairlane.expire_messages(p_limit int, p_now timestamptz)
RETURNS TABLE (queue_id bigint, rule text, messages bigint, unread bigint, checked int)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_ids bigint[];
    v_limited bigint[];
    r record;
    v_any interval;
    v_done interval;
    v_committed bigint;
    v_start bigint;
    v_upto bigint;
    v_open bigint;
    v_unread bigint;
    v_holes bigint;
    v_first timestamptz;
    v_next timestamptz;
BEGIN
    SELECT array_agg(x.partition_id ORDER BY x.partition_id) INTO v_ids
    FROM (SELECT e.partition_id FROM fairlane.expiries e
          WHERE e.due_at <= t ORDER BY e.due_at LIMIT p_limit) x;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    v_limited := fairlane.limited_queues(v_ids);
    PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_limited) ORDER BY q.id FOR UPDATE;
    PERFORM 1 FROM fairlane.partitions p WHERE p.id = ANY (v_ids) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT fairlane.limited_queues(v_ids) <@ v_limited THEN
        RAISE EXCEPTION 'a queue got a max_size meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = ANY (v_ids)
    ORDER BY k.partition_id, k.group_id FOR UPDATE;
    t := coalesce(p_now, clock_timestamp());

    FOR r IN
        SELECT i.id, p.queue_id AS queue, p.name, p.start, p.head, greatest(p.last_at, p.created_at) AS used_at, q.retained,
               (q.options ->> 'retention_seconds')::bigint AS any_seconds,
               (q.options ->> 'completed_retention_seconds')::bigint AS done_seconds,
               greatest((q.options ->> 'dedup_seconds')::bigint, 2592000) AS idle_seconds
        FROM unnest(v_ids) i(id)
        LEFT JOIN fairlane.partitions p ON p.id = i.id
        LEFT JOIN fairlane.queues q ON q.id = p.queue_id
    LOOP
        v_any := CASE WHEN r.retained AND r.any_seconds > 0 THEN make_interval(secs => r.any_seconds) END;
        v_done := CASE WHEN r.retained AND r.done_seconds > 0 THEN make_interval(secs => r.done_seconds) END;
        IF r.retained IS NULL OR v_any IS NULL AND v_done IS NULL AND r.start < r.head THEN
            DELETE FROM fairlane.expiries e WHERE e.partition_id = r.id;
            CONTINUE;
        END IF;
        v_start := r.start;
        v_open := fairlane.open_messages(r.id);
        IF v_done IS NOT NULL THEN
            -- A group without a cursor here has finished nothing here.
            SELECT min(k.committed) INTO v_committed FROM fairlane.cursors k WHERE k.partition_id = r.id
            HAVING count(*) = (SELECT count(*) FROM fairlane.groups g WHERE g.queue_id = r.queue);
            v_upto := least(v_committed, fairlane.position_at(r.id, t - v_done + interval '1 microsecond'));
            IF v_committed > v_start AND v_upto > v_start THEN
                SELECT count(*) INTO v_holes FROM fairlane.skips x WHERE x.partition_id = r.id
                    AND x.position >= v_start AND x.position < v_upto AND x.group_id = 0;
                PERFORM fairlane.forget_below(r.id, v_upto, r.head, t);
                PERFORM fairlane.record_expiry(r.queue, r.name, 'completed', v_upto - v_start - v_holes, 0, t);
                RETURN QUERY SELECT r.queue, 'completed', v_upto - v_start - v_holes, 0::bigint, NULL::int;
                v_start := v_upto;
            END IF;
        END IF;
        IF v_any IS NOT NULL THEN
            SELECT min(x.position) INTO v_committed FROM (
                SELECT k.committed AS position FROM fairlane.cursors k
                WHERE k.partition_id = r.id AND k.lease IS NOT NULL AND k.ready_at > t
                UNION ALL
                SELECT c.first_pos FROM fairlane.claims c
                WHERE c.partition_id = r.id AND c.ends_at > t
                UNION ALL
                SELECT f.position FROM fairlane.failures f
                WHERE f.partition_id = r.id AND f.token IS NOT NULL AND f.due_at > t) x;
            v_upto := least(v_committed, fairlane.position_at(r.id, t - v_any + interval '1 microsecond'));
            IF v_upto > v_start THEN
                SELECT count(*) INTO v_holes FROM fairlane.skips x WHERE x.partition_id = r.id
                    AND x.position >= v_start AND x.position < v_upto AND x.group_id = 0;
                PERFORM fairlane.forget_below(r.id, v_upto, r.head, t);
                v_unread := v_open - fairlane.open_messages(r.id);
                UPDATE fairlane.queues q SET depth = q.depth - v_unread WHERE q.id = r.queue AND q.id = ANY (v_limited) AND v_unread > 0;
                PERFORM fairlane.record_expiry(r.queue, r.name, 'retention', v_upto - v_start - v_holes, v_unread, t);
                RETURN QUERY SELECT r.queue, 'retention', v_upto - v_start - v_holes, v_unread, NULL::int;
                v_start := v_upto;
            END IF;
        END IF;

        IF v_start < r.head THEN
            SELECT s.created_at INTO v_first FROM fairlane.segments s
            WHERE s.partition_id = r.id AND s.first_pos <= v_start ORDER BY s.first_pos DESC LIMIT 1;
            v_next := v_first + least(v_any, v_done);
            IF v_next <= t THEN
                v_next := t + greatest(interval '1 s', least(interval '1 h', (t - v_first) / 8));
            END IF;
        ELSE
            v_next := r.used_at + make_interval(secs => r.idle_seconds);
            IF v_next <= t THEN
                IF fairlane.drop_partition(r.id) THEN
                    PERFORM fairlane.record_expiry(r.queue, r.name, 'partitions', 1, 0, t);
                    RETURN QUERY SELECT r.queue, 'partitions', 1::bigint, 0::bigint, NULL::int;
                    CONTINUE;
                END IF;
                v_next := t + interval '1 h';
            END IF;
        END IF;
        UPDATE fairlane.expiries e SET due_at = v_next WHERE e.partition_id = r.id;
    END LOOP;
    RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, cardinality(v_ids);
END $$;

-- Schedules the check of up to p_limit partitions of a queue, by name after p_after. Returns the last name, NULL if there was
-- none. Under the locks of the partitions, so that a push with outdated rules is either seen here or sees the new ones.
CREATE OR REPLACE FUNCTION fairlane.schedule_retention(p_queue bigint, p_after text, p_limit int, p_now timestamptz) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids bigint[];
    v_last text;
BEGIN
    SELECT array_agg(x.id ORDER BY x.id), max(x.name COLLATE "C") INTO v_ids, v_last
    FROM (SELECT p.id, p.name FROM fairlane.partitions p
          WHERE p.queue_id = p_queue AND p.name > p_after ORDER BY p.name LIMIT p_limit) x;
    IF v_ids IS NULL THEN
        RETURN NULL;
    END IF;
    v_ids := ARRAY(SELECT x.id FROM (SELECT p.id FROM fairlane.partitions p WHERE p.id = ANY (v_ids)
                                     ORDER BY p.id FOR NO KEY UPDATE) x);
    t := coalesce(p_now, clock_timestamp());
    INSERT INTO fairlane.expiries AS e (partition_id, queue_id, due_at)
    SELECT i.id, p_queue, t FROM unnest(v_ids) i(id)
    ON CONFLICT (partition_id) DO UPDATE SET due_at = excluded.due_at;
    RETURN v_last;
END $$;

-- Removes up to p_limit segments below the start of these partitions, and ids after a clear. Returns the number of rows. The ids
-- of a segment are kept for the window of their queue. A stored message begins with its ids at fixed offsets: the message id at
-- 8, the transactionId at 63 if it has the 36 characters of a UUID.
CREATE OR REPLACE FUNCTION fairlane.trim_log(p_ids bigint[], p_limit int, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_segments bigint;
    v_ids bigint;
BEGIN
    -- No push waits for the disk because of this. What a crash undoes is done again.
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH gone AS (
        DELETE FROM fairlane.segments s
        USING (SELECT x.partition_id, x.first_pos, p.seconds, p.cleared
               FROM (SELECT y.id, y.start, (q.options ->> 'dedup_seconds')::bigint AS seconds, coalesce(c.cleared, 0) AS cleared
                     FROM fairlane.partitions y JOIN fairlane.queues q ON q.id = y.queue_id
                     LEFT JOIN fairlane.trims c ON c.partition_id = y.id
                     WHERE y.id = ANY (p_ids) OFFSET 0) p
               JOIN fairlane.segments x ON x.partition_id = p.id
               WHERE x.first_pos < p.start AND x.first_pos + x.n <= p.start LIMIT p_limit) d
        WHERE s.partition_id = d.partition_id AND s.first_pos = d.first_pos
        RETURNING s.partition_id, s.first_pos, s.created_at, s.keys, s.ends, s.body, d.seconds, d.cleared),
    marked AS NOT MATERIALIZED (
        SELECT g.*, g.created_at + make_interval(secs => g.seconds) AS forget_at,
               g.created_at + make_interval(secs => g.seconds) > t AND g.first_pos >= g.cleared AS known
        FROM gone g),
    ids AS (
        SELECT g.partition_id, g.first_pos, g.created_at, g.forget_at, g.keys, i.message_ids,
               CASE WHEN i.transaction_ids <> i.message_ids THEN fairlane.uuids_in(g.ends, g.body) END AS transaction_ids
        FROM marked g
        CROSS JOIN LATERAL (
            SELECT string_agg(substring(g.body FROM e.low + 8 FOR 36), '') AS message_ids,
                   string_agg(substring(g.body FROM e.low + 63 FOR 36), '') AS transaction_ids
            FROM unnest(0 || g.ends[: cardinality(g.ends) - 1]) e(low)) i
        WHERE g.known),
    -- Adjacent segments of the same second share one row, because a row costs more than its ids.
    kept AS (
        INSERT INTO fairlane.deleted_ids (partition_id, created_at, first_pos, forget_at, keys, message_ids, transaction_ids)
        SELECT i.partition_id, max(i.created_at), min(i.first_pos), max(i.forget_at),
               fairlane.join_arrays(i.keys ORDER BY i.first_pos),
               decode(replace(encode(string_agg(i.message_ids, '' ORDER BY i.first_pos), 'escape'), '-', ''), 'hex'),
               fairlane.join_arrays(i.transaction_ids ORDER BY i.first_pos)
        FROM (SELECT i.*, i.transaction_ids IS NULL AS same, date_trunc('second', i.created_at) AS second,
                     sum(cardinality(i.keys)) OVER (
                         PARTITION BY i.partition_id, i.transaction_ids IS NULL, date_trunc('second', i.created_at)
                         ORDER BY i.first_pos) AS upto
              FROM ids i) i
        GROUP BY i.partition_id, i.same, i.second, i.first_pos + cardinality(i.keys) - i.upto, i.upto / 1024),
    forgotten AS (
        DELETE FROM fairlane.message_keys k
        USING (SELECT g.partition_id, g.first_pos, unnest(g.keys) AS key, cardinality(g.keys) AS n FROM marked g
               WHERE NOT g.known
                 AND (SELECT true FROM fairlane.message_keys m WHERE m.partition_id = g.partition_id LIMIT 1)) f
        WHERE k.partition_id = f.partition_id AND k.key = f.key
          AND k.position >= f.first_pos AND k.position < f.first_pos + f.n)
    SELECT count(*) INTO v_segments FROM gone;

    SELECT fairlane.forget_deleted_ids(array_agg(x.partition_id), array_agg(x.created_at), array_agg(x.first_pos)) INTO v_ids
    FROM (SELECT d.partition_id, d.created_at, d.first_pos FROM fairlane.trims c
          JOIN fairlane.deleted_ids d ON d.partition_id = c.partition_id AND d.first_pos < c.cleared
          WHERE c.partition_id = ANY (p_ids) AND c.cleared > 0 LIMIT p_limit) x;
    RETURN v_segments + v_ids;
END $$;

-- Removes results, cancellations and marks of messages without a message or an id.
CREATE OR REPLACE FUNCTION fairlane.trim_records(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v record;
BEGIN
    SELECT array_agg(p.id) AS ids, array_agg(least(
               p.start,
               (SELECT s.first_pos FROM fairlane.segments s WHERE s.partition_id = p.id
                ORDER BY s.first_pos LIMIT 1),
               (SELECT d.first_pos FROM fairlane.deleted_ids d WHERE d.partition_id = p.id
                ORDER BY d.created_at, d.first_pos LIMIT 1))) AS first INTO v
    FROM fairlane.partitions p
    WHERE p.id = ANY (p_ids)
      AND (EXISTS (SELECT 1 FROM fairlane.results r WHERE r.partition_id = p.id AND r.position < p.start)
           OR EXISTS (SELECT 1 FROM fairlane.cancellations c WHERE c.partition_id = p.id AND c.position < p.start)
           OR EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.partition_id = p.id AND x.position < p.start));
    DELETE FROM fairlane.results r USING unnest(v.ids, v.first) u(id, first)
    WHERE r.partition_id = u.id AND r.position < u.first;
    DELETE FROM fairlane.cancellations c USING unnest(v.ids, v.first) u(id, first)
    WHERE c.partition_id = u.id AND c.position < u.first;
    DELETE FROM fairlane.skips x USING unnest(v.ids, v.first) u(id, first)
    WHERE x.partition_id = u.id AND x.position < u.first;
END $$;
