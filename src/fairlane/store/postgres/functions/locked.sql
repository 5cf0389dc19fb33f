-- Of some lanes those that somebody else holds a row of: the partition's, that of its queue if it is limited, or the cursor of the group;
-- without a group (0) the cursors that a push would wake. Waits for nothing, and holds what is free only until it returns.
CREATE OR REPLACE FUNCTION fairlane.locked(p_shard int, p_partitions bigint[], p_groups bigint[])
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
        WHERE p.shard = p_shard AND p.id = p_partitions[i];
        CONTINUE WHEN NOT FOUND;
        SELECT count(*) INTO v_cursors FROM fairlane.cursors c
        WHERE c.shard = p_shard AND c.partition_id = p_partitions[i]
          AND CASE WHEN p_groups[i] = 0 THEN c.ready_at IS NULL ELSE c.group_id = p_groups[i] END;
        SELECT count(*) INTO v_free FROM (
            SELECT 1 FROM fairlane.cursors c
            WHERE c.shard = p_shard AND c.partition_id = p_partitions[i]
              AND CASE WHEN p_groups[i] = 0 THEN c.ready_at IS NULL ELSE c.group_id = p_groups[i] END
            FOR UPDATE SKIP LOCKED) x;
        IF v_free = v_cursors THEN
            PERFORM 1 FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = p_partitions[i] FOR NO KEY UPDATE SKIP LOCKED;
            IF FOUND AND v_limited THEN
                PERFORM 1 FROM fairlane.queues q WHERE q.id = v_queue FOR UPDATE SKIP LOCKED;
            END IF;
            CONTINUE WHEN FOUND;
        END IF;
        RETURN QUERY SELECT p_partitions[i], p_groups[i];
    END LOOP;
END $$;
