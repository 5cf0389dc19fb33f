-- Renews live lanes of leases. A lease id contains its group, and the index of ready lanes has the live leases of a group at its
-- far end. `partition_ids` and `positions` name the messages of the lease that were cancelled.
CREATE OR REPLACE FUNCTION fairlane.renew(
    p_groups bigint[], p_tokens uuid[], p_seconds int[], p_now timestamptz
) RETURNS TABLE (renewed bigint, expires_at timestamptz, partition_ids bigint[], positions bigint[])
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    t_end timestamptz;
    v_lanes int;
BEGIN
    -- All cursors are locked in one order before the first is changed.
    PERFORM 1 FROM (
        SELECT x.partition_id, u.grp FROM unnest(p_groups, p_tokens) u(grp, token)
        CROSS JOIN LATERAL (
            SELECT k.partition_id FROM fairlane.cursors k
            WHERE k.group_id = u.grp AND k.ready_at > t AND k.ready_at < fairlane.never() AND k.lease = u.token
            UNION ALL
            SELECT c.partition_id FROM fairlane.claims c
            WHERE c.group_id = u.grp AND c.ends_at > t AND c.token = u.token
            UNION ALL
            SELECT f.partition_id FROM fairlane.failures f
            WHERE f.group_id = u.grp AND f.due_at > t AND f.token = u.token) x
        GROUP BY x.partition_id, u.grp ORDER BY x.partition_id, u.grp) u
    CROSS JOIN LATERAL (
        SELECT 1 FROM fairlane.cursors k
        WHERE k.partition_id = u.partition_id AND k.group_id = u.grp FOR UPDATE) k;
    FOR i IN 1 .. cardinality(p_tokens) LOOP
        t_end := t + make_interval(secs => p_seconds[i]);
        v_lanes := coalesce(cardinality(fairlane.claimed_lanes(p_groups[i], p_tokens[i], 0, t)), 0);
        IF v_lanes > 0 THEN
            RETURN QUERY
            WITH claimed AS (
                UPDATE fairlane.claims c SET ends_at = greatest(c.ends_at, t_end)
                WHERE c.group_id = p_groups[i] AND c.ends_at > t AND c.token = p_tokens[i]
                RETURNING c.ends_at),
            redelivered AS (
                UPDATE fairlane.failures f SET due_at = greatest(f.due_at, t_end)
                WHERE f.group_id = p_groups[i] AND f.due_at > t AND f.token = p_tokens[i]
                RETURNING f.due_at)
            SELECT v_lanes::bigint, least((SELECT min(c.ends_at) FROM claimed c), (SELECT min(f.due_at) FROM redelivered f)),
                   x.partition_ids, x.positions
            FROM fairlane.cancelled_of_lease(p_groups[i], p_tokens[i]) x;
            CONTINUE;
        END IF;
        RETURN QUERY
        WITH renewed AS (
            UPDATE fairlane.cursors k SET ready_at = greatest(k.ready_at, t_end)
            WHERE k.group_id = p_groups[i] AND k.ready_at > t AND k.ready_at < fairlane.never()
              AND k.lease = p_tokens[i]
            RETURNING k.ready_at)
        SELECT r.n, r.ready_at, x.partition_ids, x.positions
        FROM (SELECT count(*) AS n, min(y.ready_at) AS ready_at FROM renewed y) r
        CROSS JOIN fairlane.cancelled_of_lease(p_groups[i], p_tokens[i]) x;
    END LOOP;
END $$;

-- Releases lanes of a lease without counting an attempt. p_partition 0 means all of them.
CREATE OR REPLACE FUNCTION fairlane.release(p_group bigint, p_token uuid, p_partition bigint, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_ids bigint[];
BEGIN
    -- Found by the index of ready lanes, which ORDER BY for locking would bypass. Then locked and checked again.
    v_ids := ARRAY(
        SELECT k.partition_id FROM fairlane.cursors k
        WHERE k.group_id = p_group AND k.ready_at > t AND k.ready_at < fairlane.never() AND k.lease = p_token
          AND p_partition IN (0, k.partition_id));
    SELECT array_agg(x.partition_id) INTO v_ids
    FROM (SELECT k.partition_id FROM fairlane.cursors k
          WHERE k.partition_id = ANY (v_ids) AND k.group_id = p_group
            AND k.ready_at > t AND k.ready_at < fairlane.never() AND k.lease = p_token
          ORDER BY k.partition_id FOR UPDATE) x;
    -- The lane stays ready even if its batch was everything, because that batch is unread again.
    -- If none of its messages was finished, the lane remembers the previous lease, whose acks may be repeated.
    UPDATE fairlane.cursors k SET ready_at = t, lease = NULL,
        last_lease = CASE WHEN k.committed > k.lease_start OR (k.failing AND EXISTS (
                              SELECT 1 FROM fairlane.skips s WHERE s.partition_id = k.partition_id AND s.group_id = k.group_id
                              AND s.position >= k.lease_start AND s.position < k.lease_end))
                          THEN k.lease ELSE k.last_lease END
    WHERE k.group_id = p_group AND k.partition_id = ANY (v_ids);
    IF v_ids IS NULL THEN
        PERFORM 1 FROM fairlane.cursors k
        WHERE k.partition_id = ANY (fairlane.claimed_lanes(p_group, p_token, p_partition, t)) AND k.group_id = p_group
        ORDER BY k.partition_id FOR UPDATE;
        v_ids := fairlane.claimed_lanes(p_group, p_token, p_partition, t);
        FOR i IN 1 .. coalesce(cardinality(v_ids), 0) LOOP
            PERFORM fairlane.return_claims(v_ids[i], p_group, p_token, true, t);
        END LOOP;
    END IF;
    RETURN coalesce(cardinality(v_ids), 0);
END $$;

-- The lanes of an unordered queue in which a live lease holds messages. p_partition 0 means any.
CREATE OR REPLACE FUNCTION fairlane.claimed_lanes(p_group bigint, p_token uuid, p_partition bigint, t timestamptz)
RETURNS bigint[] LANGUAGE sql STABLE AS $$
    SELECT array_agg(DISTINCT x.id ORDER BY x.id) FROM (
        SELECT c.partition_id AS id FROM fairlane.claims c
        WHERE c.group_id = p_group AND c.ends_at > t AND c.token = p_token
        UNION ALL
        SELECT f.partition_id FROM fairlane.failures f
        WHERE f.group_id = p_group AND f.due_at > t AND f.token = p_token) x
    WHERE p_partition IN (0, x.id);
$$;

CREATE OR REPLACE FUNCTION fairlane.cancelled_of_lease(
    p_group bigint, p_token uuid, OUT partition_ids bigint[], OUT positions bigint[]
) LANGUAGE sql STABLE AS $$
    SELECT array_agg(c.partition_id ORDER BY c.partition_id, c.position), array_agg(c.position ORDER BY c.partition_id, c.position)
    FROM fairlane.cancellations c WHERE c.group_id = p_group AND c.token = p_token;
$$;
