-- Store the progress of messages that their consumers still hold. Returns the positions of these messages.
CREATE OR REPLACE FUNCTION fairlane.report_progress(
    p_partitions bigint[], p_groups bigint[], p_positions bigint[], p_tokens uuid[], p_reports bytea[], p_now timestamptz
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    SELECT array_agg(u.partition_id), array_agg(u.group_id), array_agg(u.position), array_agg(u.token), array_agg(u.report)
    INTO p_partitions, p_groups, p_positions, p_tokens, p_reports
    FROM unnest(p_partitions, p_groups, p_positions, p_tokens, p_reports) u(partition_id, group_id, position, token, report)
    WHERE EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.partition_id = u.partition_id AND k.group_id = u.group_id
                  AND k.lease = u.token AND k.ready_at > t AND k.committed <= u.position AND k.lease_end > u.position)
       OR EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = u.partition_id AND c.group_id = u.group_id
                  AND c.token = u.token AND c.ends_at > t AND c.first_pos <= u.position AND c.upto > u.position)
       OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = u.partition_id AND f.group_id = u.group_id
                  AND f.token = u.token AND f.due_at > t AND f.position = u.position);
    RETURN QUERY
    INSERT INTO fairlane.progress AS x (partition_id, group_id, position, token, report, reported_at)
    SELECT u.partition_id, u.group_id, u.position, u.token, u.report, t
    FROM unnest(p_partitions, p_groups, p_positions, p_tokens, p_reports) u(partition_id, group_id, position, token, report)
    ON CONFLICT (partition_id, group_id, position) DO UPDATE
    SET token = excluded.token, report = excluded.report, reported_at = excluded.reported_at
    RETURNING x.position;
END $$;
