-- Makes cursors of a group for up to p_limit partitions of one shard, by name after p_after; the last name, NULL if none can be left.
-- p_exact: heads of this moment for mode `new`, otherwise where the log stood at p_from.
CREATE OR REPLACE FUNCTION fairlane.seed(
    p_shard int, p_queue bigint, p_group bigint, p_mode text, p_from timestamptz, p_exact boolean, p_after text, p_limit int,
    p_now timestamptz
) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids bigint[];
    v_at bigint[] := '{}';
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
    FOR i IN 1 .. cardinality(v_ids) LOOP
        v_at := v_at || CASE WHEN p_mode = 'all' OR p_exact AND p_mode = 'new' THEN NULL
                             ELSE fairlane.position_at(p_shard, v_ids[i], p_from) END;
    END LOOP;
    INSERT INTO fairlane.cursors (shard, partition_id, group_id, committed, ready_at, failing)
    SELECT p_shard, p.id, p_group, x.at, CASE WHEN x.at < p.head THEN t - p.priority_lead END,
           EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.shard = p_shard AND s.partition_id = p.id AND s.position >= x.at
                   AND s.group_id = 0)
    FROM unnest(v_ids, v_at) i(id, at)
    JOIN fairlane.partitions p ON p.shard = p_shard AND p.id = i.id
    CROSS JOIN LATERAL (SELECT CASE WHEN p_mode = 'all' THEN p.start WHEN i.at IS NULL THEN p.head ELSE i.at END AS at) x
    -- Under the partitions' locks: whoever makes a cursor holds its partition, or has just made it.
    WHERE NOT EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = p.id AND k.group_id = p_group);
    RETURN CASE WHEN cardinality(v_ids) = p_limit THEN v_last END;
END $$;

-- Sends the cursors of a group to the beginning, the end, a time or a position and ends their leases; how many.
CREATE OR REPLACE FUNCTION fairlane.seek(
    p_shard int, p_queue bigint, p_group bigint, p_partition bigint, p_to text, p_at timestamptz, p_position bigint,
    p_now timestamptz
) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids bigint[];
    v_at bigint[] := '{}';
    v_moved bigint;
BEGIN
    SELECT array_agg(x.id) INTO v_ids
    FROM (SELECT p.id FROM fairlane.partitions p
          WHERE p.shard = p_shard AND p.queue_id = p_queue AND (p_partition = 0 OR p.id = p_partition)
          ORDER BY p.id FOR NO KEY UPDATE) x;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    -- In a statement of its own: pops and acks in flight are over then, and the statements behind it see all that they left.
    PERFORM 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = ANY (v_ids) AND k.group_id = p_group
    ORDER BY k.partition_id FOR UPDATE;
    t := coalesce(p_now, clock_timestamp());
    IF p_to = 'time' THEN
        FOR i IN 1 .. cardinality(v_ids) LOOP
            v_at := v_at || fairlane.position_at(p_shard, v_ids[i], p_at);
        END LOOP;
    ELSE
        v_at := array_fill(p_position, ARRAY[cardinality(v_ids)]);
    END IF;
    DELETE FROM fairlane.failures f WHERE f.shard = p_shard AND f.partition_id = ANY (v_ids) AND f.group_id = p_group;
    DELETE FROM fairlane.skips s WHERE s.shard = p_shard AND s.partition_id = ANY (v_ids) AND s.group_id = p_group;
    DELETE FROM fairlane.claims c WHERE c.shard = p_shard AND c.partition_id = ANY (v_ids) AND c.group_id = p_group;
    UPDATE fairlane.cursors k
    SET committed = x.at, claimed = 0, lease = NULL, lease_end = x.at, last_lease = NULL, probe_until = 0,
        failing = EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.shard = p_shard AND s.partition_id = x.id
                          AND s.position >= x.at AND s.group_id = 0),
        ready_at = CASE WHEN x.at < x.head THEN t - x.priority_lead END
    FROM (SELECT p.id, p.head, p.priority_lead,
                 CASE p_to WHEN 'beginning' THEN p.start WHEN 'end' THEN p.head
                           ELSE greatest(p.start, least(p.head, i.at)) END AS at
          FROM unnest(v_ids, v_at) i(id, at) JOIN fairlane.partitions p ON p.shard = p_shard AND p.id = i.id) x
    WHERE k.shard = p_shard AND k.partition_id = x.id AND k.group_id = p_group;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END $$;

-- Forgets all that is known of a group's lanes in one shard; how many there were. The caller holds the queue.
CREATE OR REPLACE FUNCTION fairlane.forget_lanes(p_shard int, p_queue bigint, p_group bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_gone bigint;
BEGIN
    SELECT array_agg(x.id) INTO v_ids
    FROM (SELECT p.id FROM fairlane.partitions p WHERE p.shard = p_shard AND p.queue_id = p_queue
          ORDER BY p.id FOR NO KEY UPDATE) x;
    PERFORM 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = ANY (v_ids) AND k.group_id = p_group
    ORDER BY k.partition_id FOR UPDATE;
    DELETE FROM fairlane.failures x WHERE x.shard = p_shard AND x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.claims x WHERE x.shard = p_shard AND x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.dead_letters x WHERE x.shard = p_shard AND x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.results x WHERE x.shard = p_shard AND x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.cursors x WHERE x.shard = p_shard AND x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    RETURN v_gone;
END $$;
