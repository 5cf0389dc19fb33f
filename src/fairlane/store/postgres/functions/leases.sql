-- Live lanes of a lease, wherever they are in the shard: a lease id names its group, and the index of ready lanes
-- holds the live leases of a group at its far end.
CREATE OR REPLACE FUNCTION fairlane.renew(
    p_shard int, p_groups bigint[], p_tokens uuid[], p_seconds int[], p_now timestamptz
) RETURNS TABLE (renewed bigint, expires_at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    t_end timestamptz;
BEGIN
    -- All cursors are locked in one order before the first is changed.
    PERFORM 1 FROM fairlane.cursors k JOIN unnest(p_groups, p_tokens) u(grp, token) ON k.group_id = u.grp AND k.lease = u.token
    WHERE k.shard = p_shard AND k.ready_at > t AND k.ready_at < fairlane.never() ORDER BY k.partition_id, k.group_id FOR UPDATE OF k;
    FOR i IN 1 .. cardinality(p_tokens) LOOP
        t_end := t + make_interval(secs => p_seconds[i]);
        RETURN QUERY
        WITH renewed AS (
            UPDATE fairlane.cursors k SET ready_at = greatest(k.ready_at, t_end)
            WHERE k.shard = p_shard AND k.group_id = p_groups[i] AND k.ready_at > t AND k.ready_at < fairlane.never()
              AND k.lease = p_tokens[i]
            RETURNING k.ready_at)
        SELECT count(*), min(r.ready_at) FROM renewed r;
    END LOOP;
END $$;

-- Gives lanes of a lease back without charge; p_partition 0 means all of them.
CREATE OR REPLACE FUNCTION fairlane.release(p_shard int, p_group bigint, p_token uuid, p_partition bigint, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_ids bigint[];
BEGIN
    SELECT array_agg(x.partition_id) INTO v_ids
    FROM (SELECT k.partition_id FROM fairlane.cursors k
          WHERE k.shard = p_shard AND k.group_id = p_group AND k.ready_at > t AND k.ready_at < fairlane.never()
            AND k.lease = p_token
            AND (p_partition = 0 OR k.partition_id = p_partition)
          ORDER BY k.partition_id FOR UPDATE) x;
    -- The lane stays ready even if its batch was all there was: there is still that batch to read.
    UPDATE fairlane.cursors k SET ready_at = t, lease = NULL, last_lease = k.lease
    WHERE k.shard = p_shard AND k.group_id = p_group AND k.partition_id = ANY (v_ids);
    RETURN coalesce(cardinality(v_ids), 0);
END $$;
