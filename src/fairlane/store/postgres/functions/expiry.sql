-- Expires messages of one lane from p_first on: dead-letters or drops them, as the queue's options say. The caller has locked the
-- cursor and moves it to `upto`. `more` is true if there are more than one step takes. max_wait_seconds applies to messages
-- without a failed attempt, ttl_seconds to all.
CREATE OR REPLACE FUNCTION fairlane.expire(
    p_queue bigint, p_partition bigint, p_group bigint, p_first bigint, o jsonb, t timestamptz
) RETURNS TABLE (upto bigint, dead int, dropped bigint, more boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ttl interval := make_interval(secs => nullif((o ->> 'ttl_seconds')::int, 0));
    v_wait interval := make_interval(secs => nullif((o ->> 'max_wait_seconds')::int, 0));
    v_oldest timestamptz;
    v_lived bigint := p_first;   -- messages below are older than ttl_seconds
    v_waited bigint := p_first;  -- messages below are older than max_wait_seconds
    v_spared bigint;             -- had failed, so max_wait_seconds does not apply
BEGIN
    upto := p_first;
    dead := 0;
    dropped := 0;
    more := false;
    SELECT s.created_at INTO v_oldest FROM fairlane.segments s
    WHERE s.partition_id = p_partition AND s.first_pos <= p_first ORDER BY s.first_pos DESC LIMIT 1;
    IF v_oldest <= t - v_ttl THEN
        v_lived := fairlane.position_at(p_partition, t - v_ttl + interval '1 microsecond');
    END IF;
    IF v_oldest <= t - v_wait THEN
        v_waited := fairlane.position_at(p_partition, t - v_wait + interval '1 microsecond');
        SELECT min(f.position) INTO v_spared FROM fairlane.failures f
        WHERE f.partition_id = p_partition AND f.group_id = p_group
          AND f.position >= greatest(p_first, v_lived) AND f.position < v_waited;
    END IF;
    upto := greatest(v_lived, least(v_waited, v_spared), p_first);
    IF o ->> 'on_expiry' = 'drop' THEN
        dropped := upto - p_first - (
            SELECT count(*) FROM fairlane.skips x WHERE x.partition_id = p_partition
            AND x.position >= p_first AND x.position < upto AND x.group_id IN (0, p_group));
        IF upto > p_first THEN
            -- Afterwards these messages look as if they were finished.
            UPDATE fairlane.fan_in_parts x SET status = 'expired', ended_at = t
            WHERE x.partition_id = p_partition AND x.position >= p_first AND x.position < upto AND x.status IS NULL
              AND x.group_name = (SELECT g.name FROM fairlane.groups g WHERE g.id = p_group)
              AND NOT EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = p_partition
                              AND s.position = x.position AND s.group_id IN (0, p_group));
            DELETE FROM fairlane.failures f WHERE f.partition_id = p_partition
                                              AND f.group_id = p_group AND f.position < upto;
        END IF;
    ELSE
        more := upto > p_first + 1000;
        upto := least(upto, p_first + 1000);
        FOR i IN p_first .. upto - 1 LOOP
            IF fairlane.next_skip(p_partition, p_group, i) IS DISTINCT FROM i THEN
                PERFORM fairlane.dead_letter(p_queue, p_partition, p_group, i, 'expired', t, NULL);
                dead := dead + 1;
            END IF;
        END LOOP;
    END IF;
    RETURN NEXT;
END $$;
