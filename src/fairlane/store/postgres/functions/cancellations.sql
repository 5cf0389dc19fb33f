-- Cancels a message for a group, or with p_group 0 for all that have not finished it and for those that are created later. Returns
-- one row for each group: cancelled, already (cancelled before) or finished, and the lease that held it. No row if there is no
-- such message.
CREATE OR REPLACE FUNCTION fairlane.cancel_message(p_partition bigint, p_group bigint, p_position bigint, p_now timestamptz)
RETURNS TABLE (group_id bigint, state text, token uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_queue bigint := fairlane.lock_partition(p_partition);
    v_limited boolean;
    v_before bigint;
    v_open boolean;
    t timestamptz;
    v_groups bigint[];
    v_states text[] := '{}';
BEGIN
    IF v_queue IS NULL OR NOT fairlane.has_message(p_partition, p_position) THEN
        RETURN;
    END IF;
    t := coalesce(p_now, clock_timestamp());
    v_limited := (SELECT (q.options ->> 'max_size')::bigint > 0 FROM fairlane.queues q WHERE q.id = v_queue);
    v_before := CASE WHEN v_limited THEN fairlane.count_finished(ARRAY[p_partition]) END;
    v_groups := ARRAY(SELECT k.group_id FROM fairlane.cursors k
                      WHERE k.partition_id = p_partition AND p_group IN (0, k.group_id) ORDER BY k.group_id);
    FOR i IN 1 .. cardinality(v_groups) LOOP
        v_states := v_states || fairlane.cancel_in_lane(p_partition, v_groups[i], p_position, t);
    END LOOP;
    v_open := v_groups = '{}' OR 'finished' <> ANY (v_states);
    IF v_open AND (p_group = 0 OR v_groups = '{}') THEN
        -- A group without a cursor here gets the mark when it gets its cursor.
        v_groups := v_groups || p_group;
        v_states := v_states || CASE WHEN fairlane.is_cancelled(p_partition, p_group, p_position) THEN 'already' ELSE 'cancelled' END;
        INSERT INTO fairlane.cancellations (partition_id, group_id, position, cancelled_at)
        VALUES (p_partition, p_group, p_position, t) ON CONFLICT DO NOTHING;
    END IF;
    IF v_limited THEN
        v_before := fairlane.count_finished(ARRAY[p_partition]) - v_before;
        UPDATE fairlane.queues q SET depth = q.depth - v_before WHERE q.id = v_queue;
    END IF;
    RETURN QUERY
    SELECT u.grp, u.state, c.token FROM unnest(v_groups, v_states) u(grp, state)
    LEFT JOIN fairlane.cancellations c ON c.partition_id = p_partition AND c.group_id = u.grp AND c.position = p_position;
END $$;

CREATE OR REPLACE FUNCTION fairlane.is_cancelled(p_partition bigint, p_group bigint, p_position bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM fairlane.cancellations c
                   WHERE c.partition_id = p_partition AND c.group_id = p_group AND c.position = p_position);
$$;

-- Cancels a message in one lane, whose cursor and partition the caller has locked. Returns its state.
CREATE OR REPLACE FUNCTION fairlane.cancel_in_lane(p_partition bigint, p_group bigint, p_position bigint, t timestamptz)
RETURNS text
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    k fairlane.cursors;
    p record;
    v_token uuid;
    v_live boolean;
    v_to bigint;
    v_over boolean;
    v_failing boolean;
    v_ready timestamptz;
BEGIN
    IF fairlane.is_cancelled(p_partition, p_group, p_position) THEN
        RETURN 'already';
    END IF;
    SELECT x.* INTO k FROM fairlane.cursors x WHERE x.partition_id = p_partition AND x.group_id = p_group;
    SELECT x.head, x.priority_lead INTO p FROM fairlane.partitions x WHERE x.id = p_partition;
    IF p_position < k.committed OR fairlane.next_skip(p_partition, p_group, p_position) = p_position THEN
        RETURN 'finished';
    END IF;
    IF p_position < k.claimed THEN
        v_token := coalesce(
            (SELECT c.token FROM fairlane.claims c WHERE c.partition_id = p_partition AND c.group_id = p_group
             AND c.first_pos <= p_position AND c.upto > p_position AND c.ends_at > t),
            (SELECT f.token FROM fairlane.failures f WHERE f.partition_id = p_partition AND f.group_id = p_group
             AND f.position = p_position AND f.due_at > t));
        IF fairlane.take_claims(p_partition, p_group, NULL, p_position, p_position + 1, t) = '{}' THEN
            RETURN 'finished';
        END IF;
        DELETE FROM fairlane.failures f WHERE f.partition_id = p_partition AND f.group_id = p_group AND f.position = p_position;
        v_to := fairlane.watermark(p_partition, p_group, k.committed, greatest(k.committed, k.claimed));
        UPDATE fairlane.cursors x SET committed = v_to
        WHERE x.partition_id = p_partition AND x.group_id = p_group;
    ELSE
        v_live := k.lease IS NOT NULL AND k.ready_at > t;
        v_token := CASE WHEN v_live AND p_position < k.lease_end THEN k.lease END;
        DELETE FROM fairlane.failures f WHERE f.partition_id = p_partition AND f.group_id = p_group AND f.position = p_position;
        INSERT INTO fairlane.skips (partition_id, position, group_id, created_at) VALUES (p_partition, p_position, p_group, t);
        -- The next pop charges the first message of an expired lease, so that cursor stays.
        v_to := CASE WHEN k.lease IS NULL OR v_live THEN fairlane.next_deliverable(p_partition, p_group, k.committed)
                     ELSE k.committed END;
        v_over := v_live AND v_to >= k.lease_end;
        DELETE FROM fairlane.failures f WHERE f.partition_id = p_partition AND f.group_id = p_group AND f.position < v_to;
        DELETE FROM fairlane.skips x WHERE x.partition_id = p_partition AND x.position < v_to AND x.group_id = p_group;
        v_failing := fairlane.has_obstacles(p_partition, p_group, v_to);
        v_ready := CASE WHEN v_to < p.head THEN t - p.priority_lead END;
        UPDATE fairlane.cursors x
        SET committed = v_to, failing = v_failing,
            lease = CASE WHEN v_over THEN NULL ELSE x.lease END, last_lease = CASE WHEN v_over THEN x.lease ELSE x.last_lease END,
            ready_at = CASE WHEN v_to = k.committed OR v_live AND NOT v_over THEN x.ready_at ELSE v_ready END
        WHERE x.partition_id = p_partition AND x.group_id = p_group;
    END IF;
    INSERT INTO fairlane.cancellations (partition_id, group_id, position, token, cancelled_at)
    VALUES (p_partition, p_group, p_position, v_token, t);
    RETURN 'cancelled';
END $$;

-- Leaves cancelled messages out of lanes of a group whose cursors were created or moved: those that were cancelled for every
-- group, or for this one. The caller has locked the partitions.
CREATE OR REPLACE FUNCTION fairlane.skip_cancelled(p_partitions bigint[], p_group bigint, t timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_positions bigint[];
    v_at timestamptz[];
BEGIN
    -- Cancellations for every group, and for this one.
    SELECT array_agg(c.partition_id), array_agg(c.position), array_agg(c.cancelled_at) INTO v_ids, v_positions, v_at
    FROM fairlane.cancellations c JOIN fairlane.cursors k ON k.partition_id = c.partition_id AND k.group_id = p_group
    WHERE c.partition_id = ANY (p_partitions) AND c.group_id IN (0, p_group) AND c.position >= greatest(k.committed, k.claimed);
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO fairlane.cancellations (partition_id, group_id, position, cancelled_at)
    SELECT u.id, p_group, u.position, u.at FROM unnest(v_ids, v_positions, v_at) u(id, position, at) ON CONFLICT DO NOTHING;
    INSERT INTO fairlane.skips (partition_id, position, group_id, created_at)
    SELECT DISTINCT u.id, u.position, p_group, t FROM unnest(v_ids, v_positions) u(id, position) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE fairlane.cursors k SET failing = true
        WHERE k.partition_id = ANY (p_partitions) AND k.group_id = p_group AND EXISTS (
            SELECT 1 FROM fairlane.skips s
            WHERE s.partition_id = k.partition_id AND s.position >= k.committed AND s.group_id = p_group);
    END IF;
END $$;
