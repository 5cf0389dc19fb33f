-- The retry limit that a message names, NULL if it names none. It is in the head, after the traceId and before the data. No
-- earlier string can contain these keys, because quotes in strings are escaped.
CREATE OR REPLACE FUNCTION fairlane.own_retry_limit(p_partition bigint, p_position bigint) RETURNS int
LANGUAGE sql STABLE AS $$
    SELECT substring(split_part(split_part(encode(substring(s.body FROM coalesce(s.ends[p_position - s.first_pos], 0) + 1 FOR 2400), 'escape'),
                                           '","data":', 1), ',"traceId":', 2) FROM '^(?:null|"[0-9A-Fa-f-]*"),"maxAttempts":([0-9]+)')::int - 1
    FROM (SELECT x.first_pos, x.ends, x.body FROM fairlane.segments x
          WHERE x.partition_id = p_partition AND x.first_pos <= p_position
          ORDER BY x.first_pos DESC LIMIT 1) s;
$$;

-- The earlier failures of a message, with one more. Only the latest are kept.
CREATE OR REPLACE FUNCTION fairlane.add_to_history(p_history jsonb, p_error text, p_traceback text, p_at timestamptz) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_array_length(p_history) >= 9 THEN p_history - 0 ELSE p_history END
        || jsonb_build_array(jsonb_build_object('at', (extract(epoch FROM p_at) * 1000000)::bigint, 'error', p_error, 'traceback', p_traceback));
$$;

-- Stores a dead letter with the complete message. A message that failed again after a seek replaces its letter. Without p_error
-- the error of its last failure is kept.
CREATE OR REPLACE FUNCTION fairlane.dead_letter(
    p_queue bigint, p_partition bigint, p_group bigint, p_position bigint, p_error text, p_now timestamptz,
    p_charge int DEFAULT 0,  -- 1: this delivery failed too, and was not counted yet; NULL: it may never have been delivered
    p_traceback text DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    f record;
    s record;
    lo int;
    v_forward_at timestamptz;
BEGIN
    SELECT x.attempts, x.first_failed_at, x.failed_at, x.error, x.traceback, x.history INTO f FROM fairlane.failures x
    WHERE x.partition_id = p_partition AND x.group_id = p_group AND x.position = p_position;
    SELECT x.first_pos, x.created_at, x.ends, x.body INTO s FROM fairlane.segments x
    WHERE x.partition_id = p_partition AND x.first_pos <= p_position
    ORDER BY x.first_pos DESC LIMIT 1;
    lo := coalesce(s.ends[p_position - s.first_pos], 0);
    SELECT p_now INTO v_forward_at FROM fairlane.queues q
    WHERE q.id = p_queue AND jsonb_typeof(q.options -> 'dead_letter_queue') = 'string';
    INSERT INTO fairlane.dead_letters AS d
           (partition_id, group_id, position, queue_id, message, message_created_at, error, attempts,
            first_failed_at, failed_at, traceback, history, forward_at)
    VALUES (p_partition, p_group, p_position, p_queue,
            substring(s.body FROM lo + 1 FOR s.ends[p_position - s.first_pos + 1] - lo), s.created_at, coalesce(p_error, f.error),
            CASE WHEN p_charge IS NULL THEN coalesce(f.attempts, 0) ELSE greatest(f.attempts + p_charge, 1) END, least(f.first_failed_at, p_now), p_now,
            CASE WHEN p_error IS NULL THEN f.traceback ELSE p_traceback END,
            CASE WHEN f.attempts > 0 AND p_error IS NOT NULL AND f.failed_at < p_now
                 THEN fairlane.add_to_history(f.history, f.error, f.traceback, f.failed_at) ELSE coalesce(f.history, '[]') END,
            v_forward_at)
    ON CONFLICT (partition_id, group_id, position) DO UPDATE
    SET error = excluded.error, attempts = excluded.attempts, first_failed_at = excluded.first_failed_at,
        failed_at = excluded.failed_at, traceback = excluded.traceback, history = excluded.history,
        forward_at = excluded.forward_at,
        replayed_at = NULL, replayed_as = NULL;
    DELETE FROM fairlane.failures x
    WHERE x.partition_id = p_partition AND x.group_id = p_group AND x.position = p_position;
END $$;

-- Dead-letters a message for one group, wherever its cursor is. Returns dead, finished or gone.
CREATE OR REPLACE FUNCTION fairlane.dead_letter_message(
    p_partition bigint, p_group bigint, p_position bigint, p_error text, p_now timestamptz
) RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_queue bigint := fairlane.lock_partition(p_partition);
    v_committed bigint := (SELECT k.committed FROM fairlane.cursors k
                           WHERE k.partition_id = p_partition AND k.group_id = p_group);
BEGIN
    IF v_queue IS NULL OR v_committed IS NULL OR NOT fairlane.has_message(p_partition, p_position) THEN
        RETURN 'gone';
    END IF;
    IF p_position < v_committed OR fairlane.next_skip(p_partition, p_group, p_position) = p_position THEN
        RETURN 'finished';
    END IF;
    t := coalesce(p_now, clock_timestamp());
    IF p_position < (SELECT k.claimed FROM fairlane.cursors k
                     WHERE k.partition_id = p_partition AND k.group_id = p_group) THEN
        RETURN (SELECT CASE WHEN s.died = '{}' THEN 'finished' ELSE 'dead' END
                FROM fairlane.ack_unordered(ARRAY[p_partition], ARRAY[p_group], ARRAY[NULL]::uuid[], ARRAY[false], ARRAY[1],
                                     ARRAY['dead_letter'], ARRAY[p_position], ARRAY[p_position + 1], ARRAY[-1]::bigint[], ARRAY[p_error], '{}',
                                     '{}', '{}', '{}', t) s);
    END IF;
    PERFORM fairlane.dead_letter(v_queue, p_partition, p_group, p_position, p_error, t);
    UPDATE fairlane.cursors k SET dead = k.dead + 1
    WHERE k.partition_id = p_partition AND k.group_id = p_group;
    INSERT INTO fairlane.skips (partition_id, position, group_id, created_at)
    VALUES (p_partition, p_position, p_group, t);
    PERFORM fairlane.skip_undeliverable(v_queue, p_partition, p_group, t);
    RETURN 'dead';
END $$;

-- Where a lane with failures continues from p_first: past positions finished ahead and messages without attempts left, which are
-- dead-lettered. `stuck` if the queue lets such a message block the lane. Up to `stop` messages can be delivered.
CREATE OR REPLACE FUNCTION fairlane.skip_failures(
    p_queue bigint, p_partition bigint, p_group bigint, p_committed bigint, p_first bigint, p_head bigint,
    o jsonb, t timestamptz,
    OUT first bigint, OUT attempts int, OUT dead int, OUT stuck boolean, OUT failing boolean, OUT stop bigint
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v_first bigint := p_first;
    v_attempts int;
    v_limit int;
    v_skip bigint;
BEGIN
    dead := 0;
    stuck := false;
    LOOP
        v_skip := fairlane.next_deliverable(p_partition, p_group, v_first);
        IF v_skip > v_first THEN
            DELETE FROM fairlane.failures f WHERE f.partition_id = p_partition
                                              AND f.group_id = p_group AND f.position >= v_first AND f.position < v_skip;
            v_first := v_skip;
        END IF;
        SELECT f.attempts, f.retry_limit INTO v_attempts, v_limit FROM fairlane.failures f
        WHERE f.partition_id = p_partition AND f.group_id = p_group AND f.position = v_first;
        v_attempts := coalesce(v_attempts, 0);
        EXIT WHEN v_attempts <= coalesce(v_limit, (o ->> 'retry_limit')::int);
        stuck := o ->> 'on_exhausted' IN ('block', 'park');
        EXIT WHEN stuck;
        PERFORM fairlane.dead_letter(p_queue, p_partition, p_group, v_first, NULL, t);
        v_first := v_first + 1;
        dead := dead + 1;
    END LOOP;
    IF v_first > p_committed THEN
        DELETE FROM fairlane.skips x WHERE x.partition_id = p_partition
                                       AND x.position < v_first AND x.group_id = p_group;
    END IF;
    first := v_first;
    attempts := v_attempts;
    -- A batch ends before a message without attempts left, which is dead-lettered when the cursor reaches it.
    SELECT count(*) > 0, least(min(f.position) FILTER (WHERE f.attempts > coalesce(f.retry_limit, (o ->> 'retry_limit')::int)), p_head)
    INTO failing, stop FROM fairlane.failures f
    WHERE f.partition_id = p_partition AND f.group_id = p_group AND f.position >= v_first;
    v_skip := fairlane.next_skip(p_partition, p_group, v_first);
    failing := failing OR v_skip IS NOT NULL;
    stop := least(stop, v_skip);
END $$;
