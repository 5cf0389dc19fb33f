-- The ready_at of a stopped lane: it has messages, and is not ready until it is resumed.
CREATE OR REPLACE FUNCTION fairlane.never() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT timestamptz '9999-01-01 00:00:00+00';
$$;

-- Resumes the blocked and parked lanes of a group. Returns their number. p_partition 0 means all partitions.
CREATE OR REPLACE FUNCTION fairlane.resume_lanes(p_group bigint, p_partition bigint, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_queue bigint;
    v_limit int;
    v_ids bigint[];
    v_committed bigint[];
    v_failing boolean[];
BEGIN
    SELECT q.id, (q.options ->> 'retry_limit')::int INTO v_queue, v_limit
    FROM fairlane.groups g JOIN fairlane.queues q ON q.id = g.queue_id WHERE g.id = p_group;
    SELECT array_agg(x.id) INTO v_ids
    FROM (SELECT k.partition_id AS id FROM fairlane.cursors k
          JOIN fairlane.partitions p ON p.id = k.partition_id AND p.queue_id = v_queue
          LEFT JOIN fairlane.failures f ON f.partition_id = k.partition_id AND f.group_id = k.group_id
                                       AND f.position = k.committed
          WHERE k.group_id = p_group AND (p_partition = 0 OR k.partition_id = p_partition)
            AND (k.parked OR k.ready_at = fairlane.never() AND f.attempts > coalesce(f.retry_limit, v_limit))
          ORDER BY k.partition_id FOR UPDATE OF k) x;
    DELETE FROM fairlane.failures f USING fairlane.cursors k
    WHERE f.partition_id = ANY (v_ids) AND f.group_id = p_group AND f.position = k.committed
      AND f.due_at IS NULL
      AND k.partition_id = f.partition_id AND k.group_id = p_group;
    SELECT array_agg(k.partition_id), array_agg(k.committed), array_agg(true) INTO v_ids, v_committed, v_failing
    FROM fairlane.cursors k WHERE k.partition_id = ANY (v_ids) AND k.group_id = p_group;
    v_failing := fairlane.still_failing(p_group, v_ids, v_committed, v_failing);
    UPDATE fairlane.cursors k
    SET parked = false, failing = u.failing, ready_at = CASE WHEN k.ready_at = fairlane.never() THEN t ELSE k.ready_at END
    FROM unnest(v_ids, v_failing) u(id, failing) WHERE k.partition_id = u.id AND k.group_id = p_group;
    RETURN coalesce(cardinality(v_ids), 0);
END $$;
