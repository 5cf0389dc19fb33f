-- Messages of one partition that some group that counts has not finished; all retained ones while there is no group.
CREATE OR REPLACE FUNCTION fairlane.open_messages(p_shard int, p_partition bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT p.head - m.done - (SELECT count(*) FROM fairlane.skips s
                              WHERE s.shard = p_shard AND s.partition_id = p_partition AND s.position >= m.done AND s.group_id = 0)
                  + CASE WHEN m.unordered THEN fairlane.in_flight(p_shard, p_partition, m.done) ELSE 0 END
    FROM fairlane.partitions p
    CROSS JOIN LATERAL (SELECT coalesce(min(greatest(c.committed, c.claimed)), p.start) AS done, bool_or(c.claimed > 0) AS unordered
                        FROM fairlane.counting c WHERE c.shard = p_shard AND c.partition_id = p_partition) m
    WHERE p.shard = p_shard AND p.id = p_partition;
$$;

-- Adds to the history of a queue and of a partition.
CREATE OR REPLACE FUNCTION fairlane.record_expiry(
    p_shard int, p_queue bigint, p_partition text, p_rule text, p_messages bigint, p_unread bigint, p_now timestamptz
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO fairlane.retention_minutes AS h (shard, queue_id, at, rule, messages, unread)
    VALUES (p_shard, p_queue, date_trunc('minute', p_now), p_rule, p_messages, p_unread)
    ON CONFLICT (shard, queue_id, at, rule) DO UPDATE
    SET messages = h.messages + excluded.messages, unread = h.unread + excluded.unread;
    INSERT INTO fairlane.retention_hours AS h (shard, queue_id, partition_name, at, rule, messages, unread)
    VALUES (p_shard, p_queue, p_partition, date_trunc('hour', p_now), p_rule, p_messages, p_unread)
    ON CONFLICT (shard, queue_id, partition_name, at, rule) DO UPDATE
    SET messages = h.messages + excluded.messages, unread = h.unread + excluded.unread;
$$;

-- Moves the start of one partition, which the caller holds with its cursors, to a position, and the cursors that stand before it.
CREATE OR REPLACE FUNCTION fairlane.forget_below(p_shard int, p_partition bigint, p_upto bigint, p_head bigint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- What a lane never handed out expires, and of what it did, in an unordered queue, what is still open.
    UPDATE fairlane.cursors k
    SET expired = k.expired + greatest(0, p_upto - greatest(k.committed, k.claimed)) - (
            SELECT count(*) FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = p_partition
            AND x.position >= greatest(k.committed, k.claimed) AND x.position < p_upto AND x.group_id IN (0, k.group_id))
        + CASE WHEN k.claimed = 0 THEN 0 ELSE (
            SELECT coalesce(sum(least(c.upto, p_upto) - c.first_pos), 0) FROM fairlane.claims c
            WHERE c.shard = p_shard AND c.partition_id = p_partition AND c.group_id = k.group_id AND c.first_pos < p_upto) + (
            SELECT count(*) FROM fairlane.failures f WHERE f.shard = p_shard AND f.partition_id = p_partition
            AND f.group_id = k.group_id AND f.position < p_upto AND f.due_at IS NOT NULL) END
    WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.committed < p_upto;
    DELETE FROM fairlane.claims c WHERE c.shard = p_shard AND c.partition_id = p_partition AND c.upto <= p_upto;
    UPDATE fairlane.claims c SET first_pos = p_upto
    WHERE c.shard = p_shard AND c.partition_id = p_partition AND c.first_pos < p_upto;
    DELETE FROM fairlane.failures f WHERE f.shard = p_shard AND f.partition_id = p_partition AND f.position < p_upto;
    -- Messages that were taken out stay marked until nothing is left of their segment: their ids are not remembered.
    DELETE FROM fairlane.skips x
    WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.position < p_upto AND x.group_id <> 0;
    UPDATE fairlane.cursors k
    SET committed = fairlane.watermark(p_shard, p_partition, k.group_id, p_upto, greatest(p_upto, k.claimed)), lease = NULL,
        ready_at = CASE WHEN p_upto < p_head THEN p_now END,
        failing = fairlane.obstacles(p_shard, p_partition, k.group_id, p_upto)
    WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.committed < p_upto;
    UPDATE fairlane.partitions p SET start = p_upto WHERE p.shard = p_shard AND p.id = p_partition;
    INSERT INTO fairlane.trims (shard, partition_id) VALUES (p_shard, p_partition) ON CONFLICT DO NOTHING;
END $$;

-- Removes an empty partition with all that belongs to it; false if something in it is still wanted. The caller holds it.
CREATE OR REPLACE FUNCTION fairlane.drop_partition(p_shard int, p_partition bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_keys bigint;
BEGIN
    IF EXISTS (SELECT 1 FROM fairlane.dead_letters d WHERE d.shard = p_shard AND d.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.stream_state s WHERE s.shard = p_shard AND s.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = p_partition AND p.paused_at IS NOT NULL)
       OR EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.parked)
       OR EXISTS (SELECT 1 FROM fairlane.operation_backlogs o WHERE o.shard = p_shard AND o.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.scheduled_segments x WHERE x.shard = p_shard AND x.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.deleted_ids d WHERE d.shard = p_shard AND d.partition_id = p_partition)
       OR EXISTS (SELECT 1 FROM fairlane.segments s WHERE s.shard = p_shard AND s.partition_id = p_partition) THEN
        RETURN false;
    END IF;
    -- There may be very many ids: the rest goes when the partition is looked at again.
    DELETE FROM fairlane.message_keys k
    WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.key = ANY (ARRAY(
        SELECT m.key FROM fairlane.message_keys m WHERE m.shard = p_shard AND m.partition_id = p_partition LIMIT 5000));
    GET DIAGNOSTICS v_keys = ROW_COUNT;
    IF v_keys = 5000 THEN
        RETURN false;
    END IF;
    DELETE FROM fairlane.cursors x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.failures x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.results x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.traced x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.traces x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.trace_names x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.trims x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.expiries x WHERE x.shard = p_shard AND x.partition_id = p_partition;
    DELETE FROM fairlane.partitions x WHERE x.shard = p_shard AND x.id = p_partition;
    RETURN true;
END $$;

-- Looks at the partitions of one shard that are due and moves their start past what a rule covers; the rows of the log go later,
-- without a lock. One row per partition and rule that deleted something, then one row of rule `looked` with how many were due.
CREATE OR REPLACE FUNCTION fairlane.retain(p_shard int, p_limit int, p_now timestamptz)
RETURNS TABLE (queue_id bigint, rule text, messages bigint, unread bigint)
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
          WHERE e.shard = p_shard AND e.due_at <= t ORDER BY e.due_at LIMIT p_limit) x;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    v_limited := fairlane.limited_queues(p_shard, v_ids);
    PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_limited) ORDER BY q.id FOR UPDATE;
    PERFORM 1 FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = ANY (v_ids) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT fairlane.limited_queues(p_shard, v_ids) <@ v_limited THEN
        RAISE EXCEPTION 'a queue got a max_size meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = ANY (v_ids)
    ORDER BY k.partition_id, k.group_id FOR UPDATE;
    t := coalesce(p_now, clock_timestamp());

    FOR r IN
        SELECT i.id, p.queue_id AS queue, p.name, p.start, p.head, greatest(p.last_at, p.created_at) AS used_at, q.retained,
               (q.options ->> 'retention_seconds')::bigint AS any_seconds,
               (q.options ->> 'completed_retention_seconds')::bigint AS done_seconds,
               greatest((q.options ->> 'dedup_seconds')::bigint, 2592000) AS idle_seconds
        FROM unnest(v_ids) i(id)
        LEFT JOIN fairlane.partitions p ON p.shard = p_shard AND p.id = i.id
        LEFT JOIN fairlane.queues q ON q.id = p.queue_id
    LOOP
        v_any := CASE WHEN r.retained AND r.any_seconds > 0 THEN make_interval(secs => r.any_seconds) END;
        v_done := CASE WHEN r.retained AND r.done_seconds > 0 THEN make_interval(secs => r.done_seconds) END;
        IF r.retained IS NULL OR v_any IS NULL AND v_done IS NULL AND r.start < r.head THEN
            DELETE FROM fairlane.expiries e WHERE e.shard = p_shard AND e.partition_id = r.id;
            CONTINUE;
        END IF;
        v_start := r.start;
        v_open := fairlane.open_messages(p_shard, r.id);
        IF v_done IS NOT NULL THEN
            -- A group that still lacks its cursor here has finished nothing here.
            SELECT min(k.committed) INTO v_committed FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = r.id
            HAVING count(*) = (SELECT count(*) FROM fairlane.groups g WHERE g.queue_id = r.queue);
            v_upto := least(v_committed, fairlane.position_at(p_shard, r.id, t - v_done + interval '1 microsecond'));
            IF v_committed > v_start AND v_upto > v_start THEN
                SELECT count(*) INTO v_holes FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = r.id
                    AND x.position >= v_start AND x.position < v_upto AND x.group_id = 0;
                PERFORM fairlane.forget_below(p_shard, r.id, v_upto, r.head, t);
                PERFORM fairlane.record_expiry(p_shard, r.queue, r.name, 'completed', v_upto - v_start - v_holes, 0, t);
                RETURN QUERY SELECT r.queue, 'completed', v_upto - v_start - v_holes, 0::bigint;
                v_start := v_upto;
            END IF;
        END IF;
        IF v_any IS NOT NULL THEN
            SELECT min(x.position) INTO v_committed FROM (
                SELECT k.committed AS position FROM fairlane.cursors k
                WHERE k.shard = p_shard AND k.partition_id = r.id AND k.lease IS NOT NULL AND k.ready_at > t
                UNION ALL
                SELECT c.first_pos FROM fairlane.claims c
                WHERE c.shard = p_shard AND c.partition_id = r.id AND c.ends_at > t
                UNION ALL
                SELECT f.position FROM fairlane.failures f
                WHERE f.shard = p_shard AND f.partition_id = r.id AND f.token IS NOT NULL AND f.due_at > t) x;
            v_upto := least(v_committed, fairlane.position_at(p_shard, r.id, t - v_any + interval '1 microsecond'));
            IF v_upto > v_start THEN
                SELECT count(*) INTO v_holes FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = r.id
                    AND x.position >= v_start AND x.position < v_upto AND x.group_id = 0;
                PERFORM fairlane.forget_below(p_shard, r.id, v_upto, r.head, t);
                v_unread := v_open - fairlane.open_messages(p_shard, r.id);
                UPDATE fairlane.queues q SET depth = q.depth - v_unread WHERE q.id = r.queue AND q.id = ANY (v_limited) AND v_unread > 0;
                PERFORM fairlane.record_expiry(p_shard, r.queue, r.name, 'retention', v_upto - v_start - v_holes, v_unread, t);
                RETURN QUERY SELECT r.queue, 'retention', v_upto - v_start - v_holes, v_unread;
                v_start := v_upto;
            END IF;
        END IF;

        IF v_start < r.head THEN
            SELECT s.created_at INTO v_first FROM fairlane.segments s
            WHERE s.shard = p_shard AND s.partition_id = r.id AND s.first_pos <= v_start ORDER BY s.first_pos DESC LIMIT 1;
            v_next := v_first + least(v_any, v_done);
            IF v_next <= t THEN
                v_next := t + greatest(interval '1 s', least(interval '1 h', (t - v_first) / 8));
            END IF;
        ELSE
            v_next := r.used_at + make_interval(secs => r.idle_seconds);
            IF v_next <= t THEN
                IF fairlane.drop_partition(p_shard, r.id) THEN
                    PERFORM fairlane.record_expiry(p_shard, r.queue, r.name, 'partitions', 1, 0, t);
                    RETURN QUERY SELECT r.queue, 'partitions', 1::bigint, 0::bigint;
                    CONTINUE;
                END IF;
                v_next := t + interval '1 h';
            END IF;
        END IF;
        UPDATE fairlane.expiries e SET due_at = v_next WHERE e.shard = p_shard AND e.partition_id = r.id;
    END LOOP;
    RETURN QUERY SELECT 0::bigint, 'looked', cardinality(v_ids)::bigint, 0::bigint;
END $$;

-- Lets retention look at up to p_limit partitions of a queue in one shard, by name after p_after; the last name, NULL if there was
-- none. Under the partitions' locks: a push that does not know the queue's rules yet is either seen here or sees them.
CREATE OR REPLACE FUNCTION fairlane.cover(p_shard int, p_queue bigint, p_after text, p_limit int, p_now timestamptz) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids bigint[];
    v_last text;
BEGIN
    SELECT array_agg(x.id ORDER BY x.id), max(x.name COLLATE "C") INTO v_ids, v_last
    FROM (SELECT p.id, p.name FROM fairlane.partitions p
          WHERE p.shard = p_shard AND p.queue_id = p_queue AND p.name > p_after ORDER BY p.name LIMIT p_limit) x;
    IF v_ids IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = ANY (v_ids) ORDER BY p.id FOR NO KEY UPDATE;
    t := coalesce(p_now, clock_timestamp());
    INSERT INTO fairlane.expiries AS e (shard, partition_id, queue_id, due_at)
    SELECT p_shard, p.id, p_queue, t FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = ANY (v_ids)
    ON CONFLICT (shard, partition_id) DO UPDATE SET due_at = excluded.due_at;
    RETURN v_last;
END $$;

-- Removes up to p_limit segments of these partitions that lie below the start, and ids that a clear forgets; how many rows. The ids of a
-- segment are kept while their queue's window lasts. The stored form of a message begins with its ids, each in its place: the
-- message's at 8, the transactionId's at 63 if it has the 36 characters of a UUID.
CREATE OR REPLACE FUNCTION fairlane.trim_log(p_shard int, p_ids bigint[], p_limit int, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_segments bigint;
    v_ids bigint;
BEGIN
    -- No push waits for the disk because of this; what a crash takes back is done again.
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH gone AS (
        DELETE FROM fairlane.segments s
        USING (SELECT x.partition_id, x.first_pos, p.seconds, p.cleared
               FROM (SELECT y.id, y.start, (q.options ->> 'dedup_seconds')::bigint AS seconds, coalesce(c.cleared, 0) AS cleared
                     FROM fairlane.partitions y JOIN fairlane.queues q ON q.id = y.queue_id
                     LEFT JOIN fairlane.trims c ON c.shard = p_shard AND c.partition_id = y.id
                     WHERE y.shard = p_shard AND y.id = ANY (p_ids) OFFSET 0) p
               JOIN fairlane.segments x ON x.shard = p_shard AND x.partition_id = p.id
               WHERE x.first_pos < p.start AND x.first_pos + x.n <= p.start LIMIT p_limit) d
        WHERE s.shard = p_shard AND s.partition_id = d.partition_id AND s.first_pos = d.first_pos
        RETURNING s.partition_id, s.first_pos, s.created_at, s.keys, s.ends, s.body,
                  s.created_at + make_interval(secs => d.seconds) AS forget_at,
                  s.created_at + make_interval(secs => d.seconds) > t AND s.first_pos >= d.cleared AS known),
    ids AS (
        SELECT g.partition_id, g.first_pos, g.created_at, g.forget_at, g.keys, i.message_ids,
               CASE WHEN i.transaction_ids <> i.message_ids THEN fairlane.uuids_in(g.ends, g.body) END AS transaction_ids
        FROM gone g
        CROSS JOIN LATERAL (
            SELECT string_agg(substring(g.body FROM e.low + 8 FOR 36), '') AS message_ids,
                   string_agg(substring(g.body FROM e.low + 63 FOR 36), '') AS transaction_ids
            FROM unnest(0 || g.ends[: cardinality(g.ends) - 1]) e(low)) i
        WHERE g.known),
    -- Segments that follow each other and were written in one second leave one row together: a row costs more than the ids in it.
    kept AS (
        INSERT INTO fairlane.deleted_ids (shard, partition_id, created_at, first_pos, forget_at, keys, message_ids, transaction_ids)
        SELECT p_shard, i.partition_id, max(i.created_at), min(i.first_pos), max(i.forget_at),
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
        USING (SELECT g.partition_id, g.first_pos, unnest(g.keys) AS key, cardinality(g.keys) AS n FROM gone g
               WHERE NOT g.known AND fairlane.has_keys(p_shard, g.partition_id)) f
        WHERE k.shard = p_shard AND k.partition_id = f.partition_id AND k.key = f.key
          AND k.position >= f.first_pos AND k.position < f.first_pos + f.n)
    SELECT count(*) INTO v_segments FROM gone;

    SELECT fairlane.forget(p_shard, array_agg(x.partition_id), array_agg(x.created_at), array_agg(x.first_pos)) INTO v_ids
    FROM (SELECT d.partition_id, d.created_at, d.first_pos FROM fairlane.trims c
          JOIN fairlane.deleted_ids d ON d.shard = p_shard AND d.partition_id = c.partition_id AND d.first_pos < c.cleared
          WHERE c.shard = p_shard AND c.partition_id = ANY (p_ids) AND c.cleared > 0 LIMIT p_limit) x;
    RETURN v_segments + v_ids;
END $$;

-- Removes results, and marks of messages that were taken out, of which neither message nor id is left.
CREATE OR REPLACE FUNCTION fairlane.trim_beside(p_shard int, p_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v record;
BEGIN
    SELECT array_agg(p.id) AS ids, array_agg(least(
               p.start,
               (SELECT s.first_pos FROM fairlane.segments s WHERE s.shard = p_shard AND s.partition_id = p.id
                ORDER BY s.first_pos LIMIT 1),
               (SELECT d.first_pos FROM fairlane.deleted_ids d WHERE d.shard = p_shard AND d.partition_id = p.id
                ORDER BY d.created_at, d.first_pos LIMIT 1))) AS first INTO v
    FROM fairlane.partitions p
    WHERE p.shard = p_shard AND p.id = ANY (p_ids)
      AND (EXISTS (SELECT 1 FROM fairlane.results r WHERE r.shard = p_shard AND r.partition_id = p.id AND r.position < p.start)
           OR EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = p.id AND x.position < p.start));
    DELETE FROM fairlane.results r USING unnest(v.ids, v.first) u(id, first)
    WHERE r.shard = p_shard AND r.partition_id = u.id AND r.position < u.first;
    DELETE FROM fairlane.skips x USING unnest(v.ids, v.first) u(id, first)
    WHERE x.shard = p_shard AND x.partition_id = u.id AND x.position < u.first;
END $$;
