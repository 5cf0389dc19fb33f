-- Messages taken out of the order of the log: looking for them, stepping over them, taking more of them out.

-- The first message at or after a position that no pop of the group delivers; NULL if there is none.
CREATE OR REPLACE FUNCTION fairlane.next_skip(p_shard int, p_partition bigint, p_group bigint, p_from bigint) RETURNS bigint
LANGUAGE sql AS $$
    SELECT x.position FROM fairlane.skips x
    WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.position >= p_from AND x.group_id IN (0, p_group)
    ORDER BY x.position LIMIT 1;
$$;

-- The first position at or after one that a pop of the group may deliver.
CREATE OR REPLACE FUNCTION fairlane.past_skips(p_shard int, p_partition bigint, p_group bigint, p_from bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_to bigint := p_from;
    v_skip bigint;
BEGIN
    FOR v_skip IN SELECT x.position FROM fairlane.skips x
                  WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.position >= p_from AND x.group_id IN (0, p_group)
                  ORDER BY x.position
    LOOP
        EXIT WHEN v_skip > v_to;
        v_to := v_skip + 1;
    END LOOP;
    RETURN v_to;
END $$;

-- Whether a lane has something at or after a position that needs more than the happy path.
CREATE OR REPLACE FUNCTION fairlane.obstacles(p_shard int, p_partition bigint, p_group bigint, p_from bigint) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.shard = p_shard AND f.partition_id = p_partition
                   AND f.group_id = p_group AND f.position >= p_from)
        OR EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = p_partition
                   AND x.position >= p_from AND x.group_id IN (0, p_group));
$$;

-- Locks a partition with all its cursors, its limited queue first; NULL if it is not there, otherwise its queue.
CREATE OR REPLACE FUNCTION fairlane.hold(p_shard int, p_partition bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    v_limited bigint[] := fairlane.limited_queues(p_shard, ARRAY[p_partition]);
    v_queue bigint;
BEGIN
    PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_limited) FOR UPDATE;
    SELECT p.queue_id INTO v_queue FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = p_partition FOR NO KEY UPDATE;
    IF NOT fairlane.limited_queues(p_shard, ARRAY[p_partition]) <@ v_limited THEN
        RAISE EXCEPTION 'a queue got a max_size meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = p_partition ORDER BY k.group_id FOR UPDATE;
    RETURN (SELECT q.id FROM fairlane.queues q WHERE q.id = v_queue);
END $$;

-- Whether a partition holds this message.
CREATE OR REPLACE FUNCTION fairlane.is_there(p_shard int, p_partition bigint, p_position bigint) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = p_partition
                   AND p.start <= p_position AND p.head > p_position)
       AND NOT EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = p_partition
                       AND x.position = p_position AND x.group_id = 0);
$$;

-- Moves the cursors of a partition that nobody holds past messages which are not delivered; a lane that moves is awake.
-- The caller holds partition and cursors. p_group 0 means all groups.
CREATE OR REPLACE FUNCTION fairlane.step_over(p_shard int, p_queue bigint, p_partition bigint, p_group bigint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_head bigint := (SELECT p.head FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = p_partition);
    v_before bigint := fairlane.finished(p_shard, ARRAY[p_partition]);
    v_to bigint;
    c record;
BEGIN
    FOR c IN SELECT k.group_id, k.committed, k.lease FROM fairlane.cursors k
             WHERE k.shard = p_shard AND k.partition_id = p_partition AND (p_group = 0 OR k.group_id = p_group)
    LOOP
        v_to := CASE WHEN c.lease IS NULL THEN fairlane.past_skips(p_shard, p_partition, c.group_id, c.committed) ELSE c.committed END;
        DELETE FROM fairlane.failures f WHERE f.shard = p_shard AND f.partition_id = p_partition AND f.group_id = c.group_id
                                          AND f.position < v_to;
        UPDATE fairlane.cursors k
        SET committed = v_to, failing = fairlane.obstacles(p_shard, p_partition, c.group_id, v_to),
            ready_at = CASE WHEN v_to = c.committed THEN k.ready_at WHEN v_to < v_head THEN p_now END
        WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.group_id = c.group_id;
    END LOOP;
    UPDATE fairlane.queues q SET depth = q.depth - (fairlane.finished(p_shard, ARRAY[p_partition]) - v_before)
    WHERE q.id = p_queue AND (q.options ->> 'max_size')::bigint > 0;
END $$;

-- Takes a message out for every group, with all that is known of it; false if it is not there.
CREATE OR REPLACE FUNCTION fairlane.delete_message(
    p_shard int, p_partition bigint, p_position bigint, p_transaction_id text, p_now timestamptz
) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_queue bigint := fairlane.hold(p_shard, p_partition);
BEGIN
    IF v_queue IS NULL OR NOT fairlane.is_there(p_shard, p_partition, p_position) THEN
        RETURN false;
    END IF;
    t := coalesce(p_now, clock_timestamp());
    UPDATE fairlane.queues q SET depth = q.depth - 1
    WHERE q.id = v_queue AND (q.options ->> 'max_size')::bigint > 0
      AND fairlane.is_open(p_shard, p_partition, p_position);
    PERFORM fairlane.take(p_shard, p_partition, k.group_id, NULL, p_position, p_position + 1, t) FROM fairlane.cursors k
    WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.claimed > 0;
    DELETE FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.failures x WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.dead_letters x WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.results x WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.traces x
    WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.transaction_id = p_transaction_id;
    DELETE FROM fairlane.trace_names x
    WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.transaction_id = p_transaction_id;
    INSERT INTO fairlane.skips (shard, partition_id, position, group_id, created_at)
    VALUES (p_shard, p_partition, p_position, 0, t);
    PERFORM fairlane.step_over(p_shard, v_queue, p_partition, 0, t);
    UPDATE fairlane.cursors k SET committed = fairlane.watermark(p_shard, p_partition, k.group_id, k.committed, k.claimed)
    WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.claimed > k.committed;
    RETURN true;
END $$;

-- Dead-letters a message for one group wherever its cursor stands before it: d dead, f finished, g gone.
CREATE OR REPLACE FUNCTION fairlane.bury_message(
    p_shard int, p_partition bigint, p_group bigint, p_position bigint, p_error text, p_now timestamptz
) RETURNS "char"
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_queue bigint := fairlane.hold(p_shard, p_partition);
    v_committed bigint := (SELECT k.committed FROM fairlane.cursors k
                           WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.group_id = p_group);
BEGIN
    IF v_queue IS NULL OR v_committed IS NULL OR NOT fairlane.is_there(p_shard, p_partition, p_position) THEN
        RETURN 'g';
    END IF;
    IF p_position < v_committed OR fairlane.next_skip(p_shard, p_partition, p_group, p_position) = p_position THEN
        RETURN 'f';
    END IF;
    t := coalesce(p_now, clock_timestamp());
    IF p_position < (SELECT k.claimed FROM fairlane.cursors k
                     WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.group_id = p_group) THEN
        RETURN (SELECT CASE WHEN s.died = '{}' THEN 'f' ELSE 'd' END
                FROM fairlane.settle(p_shard, ARRAY[p_partition], ARRAY[p_group], ARRAY[NULL]::uuid[], ARRAY[false], ARRAY[1],
                                     ARRAY['b'], ARRAY[p_position], ARRAY[p_position + 1], ARRAY[-1]::bigint[], ARRAY[p_error],
                                     '{}', '{}', '{}', t) s);
    END IF;
    PERFORM fairlane.bury(p_shard, v_queue, p_partition, p_group, p_position, p_error, t);
    UPDATE fairlane.cursors k SET dead = k.dead + 1
    WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.group_id = p_group;
    INSERT INTO fairlane.skips (shard, partition_id, position, group_id, created_at)
    VALUES (p_shard, p_partition, p_position, p_group, t);
    PERFORM fairlane.step_over(p_shard, v_queue, p_partition, p_group, t);
    RETURN 'd';
END $$;

-- Takes out the scheduled messages of partitions. The caller held their bundles before it held anything else, as who appends what is
-- due does. One that was scheduled meanwhile may be in the hands of who waits for a partition: it came after the caller, and stays.
CREATE OR REPLACE FUNCTION fairlane.clear_scheduled(p_shard int, p_partitions bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[] := ARRAY(SELECT b.id FROM fairlane.bundles b WHERE b.shard = p_shard AND b.partition_id = ANY (p_partitions)
                          FOR UPDATE SKIP LOCKED);
BEGIN
    DELETE FROM fairlane.bundle_messages x WHERE x.shard = p_shard AND x.id = ANY (v_ids);
    DELETE FROM fairlane.bundle_keys x
    WHERE x.shard = p_shard AND x.partition_id = ANY (p_partitions) AND x.bundle_id = ANY (v_ids);
    DELETE FROM fairlane.bundles x WHERE x.shard = p_shard AND x.id = ANY (v_ids);
END $$;

-- Takes out all messages of a queue's partitions in one shard, and forgets their ids; how many. p_partition 0 means all partitions.
-- The caller holds their bundles, then the queue, and counts its depth anew.
CREATE OR REPLACE FUNCTION fairlane.clear(p_shard int, p_queue bigint, p_partition bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_cleared bigint;
BEGIN
    SELECT array_agg(x.id), sum(x.head - x.start) INTO v_ids, v_cleared
    FROM (SELECT p.id, p.head, p.start FROM fairlane.partitions p
          WHERE p.shard = p_shard AND p.queue_id = p_queue AND (p_partition = 0 OR p.id = p_partition)
          ORDER BY p.id FOR NO KEY UPDATE) x;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = ANY (v_ids)
    ORDER BY k.partition_id, k.group_id FOR UPDATE;
    UPDATE fairlane.cursors k
    SET committed = p.head, claimed = 0, ready_at = NULL, lease = NULL, last_lease = NULL, probe_until = 0, failing = false
    FROM fairlane.partitions p
    WHERE k.shard = p_shard AND k.partition_id = ANY (v_ids) AND p.shard = p_shard AND p.id = k.partition_id;
    DELETE FROM fairlane.failures f WHERE f.shard = p_shard AND f.partition_id = ANY (v_ids);
    DELETE FROM fairlane.claims c WHERE c.shard = p_shard AND c.partition_id = ANY (v_ids);
    v_cleared := v_cleared - (
        SELECT count(*) FROM fairlane.skips x JOIN fairlane.partitions p ON p.shard = x.shard AND p.id = x.partition_id
        WHERE x.shard = p_shard AND x.partition_id = ANY (v_ids) AND x.group_id = 0 AND x.position >= p.start);
    DELETE FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = ANY (v_ids);
    PERFORM fairlane.clear_scheduled(p_shard, v_ids);
    INSERT INTO fairlane.trims (shard, partition_id, cleared)
    SELECT p.shard, p.id, p.head FROM fairlane.partitions p
    WHERE p.shard = p_shard AND p.id = ANY (v_ids)
      AND (p.start < p.head
           OR EXISTS (SELECT 1 FROM fairlane.deleted_ids d WHERE d.shard = p_shard AND d.partition_id = p.id))
    ON CONFLICT (shard, partition_id) DO UPDATE SET cleared = excluded.cleared;
    UPDATE fairlane.partitions p SET start = p.head WHERE p.shard = p_shard AND p.id = ANY (v_ids) AND p.start < p.head;
    -- When nobody uses them any more they go.
    INSERT INTO fairlane.expiries (shard, partition_id, queue_id, due_at)
    SELECT p.shard, p.id, p.queue_id, p.last_at + interval '30 days' FROM fairlane.partitions p
    WHERE p.shard = p_shard AND p.id = ANY (v_ids)
    ON CONFLICT DO NOTHING;
    RETURN v_cleared;
END $$;
