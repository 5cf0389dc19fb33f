-- The log of a partition: positions, times, locks, and messages that pops skip.

-- The first retained position that was created at or after a time, or the head. created_at never decreases along a
-- partition, so a binary search over the primary key needs no index on time.
CREATE OR REPLACE FUNCTION fairlane.position_at(p_partition bigint, p_at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    lo bigint;
    hi bigint;
    s record;
BEGIN
    SELECT p.start, p.head INTO lo, hi FROM fairlane.partitions p WHERE p.id = p_partition;
    WHILE lo < hi LOOP
        SELECT x.first_pos, x.n, x.created_at INTO s FROM fairlane.segments x
        WHERE x.partition_id = p_partition AND x.first_pos <= (lo + hi) / 2
        ORDER BY x.first_pos DESC LIMIT 1;
        IF s.created_at >= p_at THEN
            hi := greatest(s.first_pos, lo);
            EXIT WHEN s.first_pos <= lo;
        ELSE
            lo := coalesce(s.first_pos + s.n, (lo + hi) / 2 + 1);
        END IF;
    END LOOP;
    RETURN lo;
END $$;

-- The end of a batch of large messages: after the whole segments that fit into this many bytes, and at least one message.
CREATE OR REPLACE FUNCTION fairlane.batch_end(p_partition bigint, p_first bigint, p_upto bigint, p_bytes bigint) RETURNS bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT coalesce(max(x.last), p_first + 1)
    FROM (SELECT least(s.first_pos + s.n, p_upto) AS last, sum(octet_length(s.body)) OVER (ORDER BY s.first_pos) AS bytes
          FROM fairlane.segments s
          WHERE s.partition_id = p_partition AND s.first_pos < p_upto
            AND s.first_pos >= (SELECT max(f.first_pos) FROM fairlane.segments f WHERE f.partition_id = p_partition AND f.first_pos <= p_first)) x
    WHERE x.bytes <= p_bytes;
$$;

-- The earliest delivery time of the message at a position, given a delay.
CREATE OR REPLACE FUNCTION fairlane.due_at(p_partition bigint, p_position bigint, p_delay interval) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT s.created_at + p_delay FROM fairlane.segments s
    WHERE s.partition_id = p_partition AND s.first_pos <= p_position ORDER BY s.first_pos DESC LIMIT 1;
$$;

-- The number of messages of these partitions that every counting group has finished, from position 0, without deleted ones.
CREATE OR REPLACE FUNCTION fairlane.count_finished(p_partitions bigint[]) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(x.done - (SELECT count(*) FROM fairlane.skips s
                                  WHERE s.partition_id = x.id AND s.position < x.done
                                    AND s.group_id = 0)
                        - CASE WHEN x.unordered THEN fairlane.in_flight(x.id, x.done) ELSE 0 END), 0)::bigint
    FROM (SELECT c.partition_id AS id, min(greatest(c.committed, c.claimed)) AS done, bool_or(c.claimed > 0) AS unordered
          FROM fairlane.counting c
          WHERE c.partition_id = ANY (p_partitions) GROUP BY c.partition_id) x;
$$;

-- The queues with a max_size among the queues of some partitions, by id.
CREATE OR REPLACE FUNCTION fairlane.limited_queues(p_partitions bigint[]) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM fairlane.queues q WHERE (q.options ->> 'max_size')::bigint > 0) THEN
        RETURN '{}';
    END IF;
    RETURN (
        SELECT coalesce(array_agg(q.id ORDER BY q.id), '{}')
        FROM fairlane.queues q
        WHERE (q.options ->> 'max_size')::bigint > 0
          AND q.id IN (SELECT p.queue_id FROM unnest(p_partitions) i(id) CROSS JOIN LATERAL (
                           SELECT x.queue_id FROM fairlane.partitions x WHERE x.id = i.id
                           ORDER BY x.epoch DESC LIMIT 1) p));
END $$;

-- Returns the lanes with a row that another session has locked: the partition, its queue if it is limited, or the cursor of the
-- group; without a group (0), the cursors that a push would wake. Never waits, and holds free rows only until it returns.
CREATE OR REPLACE FUNCTION fairlane.locked_lanes(p_partitions bigint[], p_groups bigint[])
RETURNS TABLE (partition_id bigint, group_id bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
    v_queue bigint;
    v_limited boolean;
    v_cursors bigint;
    v_free bigint;
BEGIN
    FOR i IN 1 .. cardinality(p_partitions) LOOP
        SELECT p.queue_id, (q.options ->> 'max_size')::bigint > 0 INTO v_queue, v_limited
        FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id
        WHERE p.id = p_partitions[i];
        CONTINUE WHEN NOT FOUND;
        SELECT count(*) INTO v_cursors FROM fairlane.cursors c
        WHERE c.partition_id = p_partitions[i]
          AND CASE WHEN p_groups[i] = 0 THEN c.ready_at IS NULL ELSE c.group_id = p_groups[i] END;
        SELECT count(*) INTO v_free FROM (
            SELECT 1 FROM fairlane.cursors c
            WHERE c.partition_id = p_partitions[i]
              AND CASE WHEN p_groups[i] = 0 THEN c.ready_at IS NULL ELSE c.group_id = p_groups[i] END
            FOR UPDATE SKIP LOCKED) x;
        IF v_free = v_cursors THEN
            PERFORM 1 FROM fairlane.partitions p WHERE p.id = p_partitions[i] FOR NO KEY UPDATE SKIP LOCKED;
            IF FOUND AND v_limited THEN
                PERFORM 1 FROM fairlane.queues q WHERE q.id = v_queue FOR UPDATE SKIP LOCKED;
            END IF;
            CONTINUE WHEN FOUND;
        END IF;
        RETURN QUERY SELECT p_partitions[i], p_groups[i];
    END LOOP;
END $$;

-- Locks a partition with all its cursors, its limited queue first. Returns its queue, NULL if it does not exist.
CREATE OR REPLACE FUNCTION fairlane.lock_partition(p_partition bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    v_limited bigint[] := fairlane.limited_queues(ARRAY[p_partition]);
    v_queue bigint;
BEGIN
    PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_limited) FOR UPDATE;
    SELECT p.queue_id INTO v_queue FROM fairlane.partitions p WHERE p.id = p_partition FOR NO KEY UPDATE;
    IF NOT fairlane.limited_queues(ARRAY[p_partition]) <@ v_limited THEN
        RAISE EXCEPTION 'a queue got a max_size meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = p_partition ORDER BY k.group_id FOR UPDATE;
    RETURN (SELECT q.id FROM fairlane.queues q WHERE q.id = v_queue);
END $$;

-- True if a partition holds this message.
CREATE OR REPLACE FUNCTION fairlane.has_message(p_partition bigint, p_position bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM fairlane.partitions p WHERE p.id = p_partition
                   AND p.start <= p_position AND p.head > p_position)
       AND NOT EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.partition_id = p_partition
                       AND x.position = p_position AND x.group_id = 0);
$$;

-- The first message at or after a position that no pop of the group delivers, or NULL.
CREATE OR REPLACE FUNCTION fairlane.next_skip(p_partition bigint, p_group bigint, p_from bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT x.position FROM fairlane.skips x
    WHERE x.partition_id = p_partition AND x.position >= p_from AND x.group_id IN (0, p_group)
    ORDER BY x.position LIMIT 1;
$$;

-- The first deliverable position of a group, at or after a position.
CREATE OR REPLACE FUNCTION fairlane.next_deliverable(p_partition bigint, p_group bigint, p_from bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    v_to bigint := p_from;
    v_skip bigint;
BEGIN
    FOR v_skip IN SELECT x.position FROM fairlane.skips x
                  WHERE x.partition_id = p_partition AND x.position >= p_from AND x.group_id IN (0, p_group)
                  ORDER BY x.position
    LOOP
        EXIT WHEN v_skip > v_to;
        v_to := v_skip + 1;
    END LOOP;
    RETURN v_to;
END $$;

-- True if a lane has something at or after a position that the fast path does not handle.
CREATE OR REPLACE FUNCTION fairlane.has_obstacles(p_partition bigint, p_group bigint, p_from bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = p_partition
                   AND f.group_id = p_group AND f.position >= p_from)
        OR EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.partition_id = p_partition
                   AND x.position >= p_from AND x.group_id IN (0, p_group));
$$;

-- For each of these lanes of a group, true if it still has failures or skips at or after the position.
CREATE OR REPLACE FUNCTION fairlane.still_failing(p_group bigint, p_partitions bigint[], p_from bigint[], p_failing boolean[])
RETURNS boolean[] LANGUAGE sql STABLE AS $$
    SELECT array_agg(u.failing AND fairlane.has_obstacles(u.id, p_group, u.first) ORDER BY u.i)
    FROM unnest(p_partitions, p_from, p_failing) WITH ORDINALITY u(id, first, failing, i);
$$;

-- Moves the free cursors of a partition past messages that are not delivered, and makes these lanes ready. The caller has locked
-- the partition and its cursors. p_group 0 means all groups.
CREATE OR REPLACE FUNCTION fairlane.skip_undeliverable(p_queue bigint, p_partition bigint, p_group bigint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_head bigint := (SELECT p.head FROM fairlane.partitions p WHERE p.id = p_partition);
    v_before bigint := fairlane.count_finished(ARRAY[p_partition]);
    v_to bigint;
    v_failing boolean;
    c record;
BEGIN
    FOR c IN SELECT k.group_id, k.committed, k.lease FROM fairlane.cursors k
             WHERE k.partition_id = p_partition AND (p_group = 0 OR k.group_id = p_group)
    LOOP
        v_to := CASE WHEN c.lease IS NULL THEN fairlane.next_deliverable(p_partition, c.group_id, c.committed) ELSE c.committed END;
        DELETE FROM fairlane.failures f WHERE f.partition_id = p_partition AND f.group_id = c.group_id
                                          AND f.position < v_to;
        v_failing := fairlane.has_obstacles(p_partition, c.group_id, v_to);
        UPDATE fairlane.cursors k
        SET committed = v_to, failing = v_failing,
            ready_at = CASE WHEN v_to = c.committed THEN k.ready_at WHEN v_to < v_head THEN p_now END
        WHERE k.partition_id = p_partition AND k.group_id = c.group_id;
    END LOOP;
    v_before := fairlane.count_finished(ARRAY[p_partition]) - v_before;
    UPDATE fairlane.queues q SET depth = q.depth - v_before WHERE q.id = p_queue AND (q.options ->> 'max_size')::bigint > 0;
END $$;

-- The newest message of a lane before p_stop that is open, at p_committed or after it. Records of the skipped messages are
-- deleted.
CREATE OR REPLACE FUNCTION fairlane.newest_deliverable(
    p_partition bigint, p_group bigint, p_committed bigint, p_stop bigint, p_failing boolean
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_first bigint := greatest(p_committed, p_stop - 1);
BEGIN
    IF p_failing THEN
        WHILE v_first > p_committed AND fairlane.next_skip(p_partition, p_group, v_first) = v_first LOOP
            v_first := v_first - 1;
        END LOOP;
        DELETE FROM fairlane.failures f WHERE f.partition_id = p_partition
                                          AND f.group_id = p_group AND f.position < v_first;
        DELETE FROM fairlane.skips x WHERE x.partition_id = p_partition
                                       AND x.position < v_first AND x.group_id = p_group;
    END IF;
    RETURN v_first;
END $$;
