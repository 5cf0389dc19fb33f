-- The earlier failures of a message, with one more; of many the oldest are forgotten.
CREATE OR REPLACE FUNCTION fairlane.earlier(p_history jsonb, p_error text, p_at timestamptz) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_array_length(p_history) >= 9 THEN p_history - 0 ELSE p_history END
        || jsonb_build_array(jsonb_build_object('at', (extract(epoch FROM p_at) * 1000000)::bigint, 'error', p_error));
$$;

-- Keeps a message that is given up on, whole. A message that failed, was sought back to and failed again replaces its letter.
-- Without p_error the error of its last failure is kept.
CREATE OR REPLACE FUNCTION fairlane.bury(
    p_shard int, p_queue bigint, p_partition bigint, p_group bigint, p_position bigint, p_error text, p_now timestamptz,
    p_charge int DEFAULT 0  -- 1: this delivery failed too, and was not counted yet; NULL: it may never have been delivered
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    f record;
    s record;
    lo int;
BEGIN
    SELECT x.attempts, x.first_failed_at, x.failed_at, x.error, x.history INTO f FROM fairlane.failures x
    WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.group_id = p_group AND x.position = p_position;
    SELECT x.first_pos, x.created_at, x.ends, x.body INTO s FROM fairlane.segments x
    WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.first_pos <= p_position
    ORDER BY x.first_pos DESC LIMIT 1;
    lo := coalesce(s.ends[p_position - s.first_pos], 0);
    INSERT INTO fairlane.dead_letters AS d
           (shard, partition_id, group_id, position, queue_id, message, message_created_at, error, attempts,
            first_failed_at, failed_at, history, forward_at)
    VALUES (p_shard, p_partition, p_group, p_position, p_queue,
            substring(s.body FROM lo + 1 FOR s.ends[p_position - s.first_pos + 1] - lo), s.created_at, coalesce(p_error, f.error),
            CASE WHEN p_charge IS NULL THEN coalesce(f.attempts, 0) ELSE greatest(f.attempts + p_charge, 1) END, least(f.first_failed_at, p_now), p_now,
            CASE WHEN f.attempts > 0 AND p_error IS NOT NULL AND f.failed_at < p_now
                 THEN fairlane.earlier(f.history, f.error, f.failed_at) ELSE coalesce(f.history, '[]') END,
            (SELECT p_now FROM fairlane.queues q
             WHERE q.id = p_queue AND jsonb_typeof(q.options -> 'dead_letter_queue') = 'string'))
    ON CONFLICT (shard, partition_id, group_id, position) DO UPDATE
    SET error = excluded.error, attempts = excluded.attempts, first_failed_at = excluded.first_failed_at,
        failed_at = excluded.failed_at, history = excluded.history, forward_at = excluded.forward_at,
        replayed_at = NULL, replayed_as = NULL;
    DELETE FROM fairlane.failures x
    WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.group_id = p_group AND x.position = p_position;
END $$;
