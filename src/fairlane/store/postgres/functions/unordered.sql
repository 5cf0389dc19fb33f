-- Unordered lanes, which many consumers share. A claim takes a range, and the lane continues at once. A message that failed,
-- timed out or was released is a row of `failures` with a due time, and is delivered before new ones.

-- True if the unfinished messages of a group count for the depth of a limited queue.
CREATE OR REPLACE FUNCTION fairlane.counts(p_group bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM fairlane.groups g WHERE g.id = p_group AND g.counts);
$$;

-- Messages of a partition below a position that some counting group got and has not finished.
CREATE OR REPLACE FUNCTION fairlane.in_flight(p_partition bigint, p_below bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT count(DISTINCT x.pos) FROM (
        SELECT g.pos FROM fairlane.claims c CROSS JOIN LATERAL generate_series(c.first_pos, least(c.upto, p_below) - 1) g(pos)
        WHERE c.partition_id = p_partition AND c.first_pos < p_below AND fairlane.counts(c.group_id)
        UNION ALL
        SELECT f.position FROM fairlane.failures f
        WHERE f.partition_id = p_partition AND f.position < p_below AND f.due_at IS NOT NULL
          AND fairlane.counts(f.group_id)) x;
$$;

-- Delivered and unfinished messages of a lane, and the number that consumers hold now.
CREATE OR REPLACE FUNCTION fairlane.holdings(p_partition bigint, p_group bigint, p_now timestamptz)
RETURNS TABLE (open bigint, leased bigint, next_at timestamptz) LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(x.n), 0)::bigint, coalesce(sum(x.n) FILTER (WHERE x.held AND x.ends_at > p_now), 0)::bigint, min(x.ends_at)
    FROM (
        SELECT c.upto - c.first_pos AS n, c.ends_at, true AS held FROM fairlane.claims c
        WHERE c.partition_id = p_partition AND c.group_id = p_group
        UNION ALL
        SELECT 1, f.due_at, f.token IS NOT NULL FROM fairlane.failures f
        WHERE f.partition_id = p_partition AND f.group_id = p_group AND f.due_at IS NOT NULL) x;
$$;

-- The number of messages finished by a group that no other counting group has open.
CREATE OR REPLACE FUNCTION fairlane.count_freed(p_partition bigint, p_group bigint, p_first bigint[], p_upto bigint[])
RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM unnest(p_first, p_upto) r(first, upto) CROSS JOIN LATERAL generate_series(r.first, r.upto - 1) g(pos)
    WHERE fairlane.counts(p_group)
      AND NOT EXISTS (SELECT 1 FROM fairlane.counting k WHERE k.partition_id = p_partition
                      AND k.group_id <> p_group AND greatest(k.committed, k.claimed) <= g.pos)
      AND NOT EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = p_partition
                      AND c.group_id <> p_group AND c.first_pos <= g.pos AND c.upto > g.pos AND fairlane.counts(c.group_id))
      AND NOT EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = p_partition
                      AND f.group_id <> p_group AND f.position = g.pos AND f.due_at IS NOT NULL AND fairlane.counts(f.group_id));
$$;

-- The first unfinished message of a lane, at or after a position below which all are finished.
CREATE OR REPLACE FUNCTION fairlane.watermark(p_partition bigint, p_group bigint, p_from bigint, p_front bigint)
RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT least(p_front,
        (SELECT c.first_pos FROM fairlane.claims c WHERE c.partition_id = p_partition
         AND c.group_id = p_group AND c.first_pos >= p_from ORDER BY c.first_pos LIMIT 1),
        (SELECT f.position FROM fairlane.failures f WHERE f.partition_id = p_partition
         AND f.group_id = p_group AND f.position >= p_from AND f.due_at IS NOT NULL ORDER BY f.position LIMIT 1));
$$;

-- True if some counting group has a message open, delivered or not.
CREATE OR REPLACE FUNCTION fairlane.is_open(p_partition bigint, p_position bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_position >= coalesce((SELECT min(greatest(k.committed, k.claimed)) FROM fairlane.counting k
                                   WHERE k.partition_id = p_partition), 0)
        OR EXISTS (SELECT 1 FROM fairlane.claims c WHERE c.partition_id = p_partition
                   AND c.first_pos <= p_position AND c.upto > p_position AND fairlane.counts(c.group_id))
        OR EXISTS (SELECT 1 FROM fairlane.failures f WHERE f.partition_id = p_partition
                   AND f.position = p_position AND f.due_at IS NOT NULL AND fairlane.counts(f.group_id));
$$;

-- Removes positions from the claims of a lane, and returns them. Redeliveries stay. With a token, only what it holds.
CREATE OR REPLACE FUNCTION fairlane.take_claims(
    p_partition bigint, p_group bigint, p_token uuid, p_first bigint, p_upto bigint, t timestamptz
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c record;
    v_taken bigint[] := '{}';
BEGIN
    FOR c IN SELECT x.first_pos, x.upto, x.token, x.ends_at FROM fairlane.claims x
             WHERE x.partition_id = p_partition AND x.group_id = p_group AND x.first_pos < p_upto
               AND x.upto > p_first AND (p_token IS NULL OR x.token = p_token AND x.ends_at > t)
    LOOP
        DELETE FROM fairlane.claims x WHERE x.partition_id = p_partition AND x.group_id = p_group
                                        AND x.first_pos = c.first_pos;
        INSERT INTO fairlane.claims (partition_id, group_id, first_pos, upto, token, ends_at)
        SELECT p_partition, p_group, r.first, r.upto, c.token, c.ends_at
        FROM unnest(ARRAY[c.first_pos, p_upto], ARRAY[p_first, c.upto]) r(first, upto) WHERE r.first < r.upto;
        v_taken := v_taken || ARRAY(SELECT g FROM generate_series(greatest(c.first_pos, p_first), least(c.upto, p_upto) - 1) g);
    END LOOP;
    RETURN v_taken || ARRAY(
        SELECT f.position FROM fairlane.failures f
        WHERE f.partition_id = p_partition AND f.group_id = p_group AND f.position >= p_first
          AND f.position < p_upto AND f.due_at IS NOT NULL AND (p_token IS NULL OR f.token = p_token AND f.due_at > t));
END $$;

-- Makes claims and redeliveries of a lane due, message by message: those of p_token without counting an attempt, or expired ones.
-- Then the first message of each lost batch is charged, unless the call is forgiving.
CREATE OR REPLACE FUNCTION fairlane.return_claims(
    p_partition bigint, p_group bigint, p_token uuid, p_forgiving boolean, t timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_tokens uuid[];
    v_first bigint[];
    v_limits int[];
    v_held bigint[];
    v_error text := CASE WHEN p_token IS NULL THEN 'Partition lease expired' ELSE 'released' END;
BEGIN
    SELECT array_agg(y.token), array_agg(y.first) INTO v_tokens, v_first
    FROM (SELECT x.token, min(x.pos) AS first FROM (
              SELECT c.token, c.first_pos AS pos FROM fairlane.claims c
              WHERE c.group_id = p_group AND c.partition_id = p_partition
                AND CASE WHEN p_token IS NULL THEN c.ends_at <= t ELSE c.ends_at > t AND c.token = p_token END
              UNION ALL
              SELECT f.token, f.position FROM fairlane.failures f
              WHERE f.group_id = p_group AND f.partition_id = p_partition AND f.token IS NOT NULL
                AND CASE WHEN p_token IS NULL THEN f.due_at <= t ELSE f.due_at > t AND f.token = p_token END) x
          GROUP BY x.token) y;
    IF v_tokens IS NULL THEN
        RETURN;
    END IF;
    IF p_forgiving THEN
        v_first := '{}';
    END IF;
    v_limits := ARRAY(SELECT fairlane.own_retry_limit(p_partition, x.pos)
                      FROM unnest(v_first) WITH ORDINALITY x(pos, i) ORDER BY x.i);
    UPDATE fairlane.failures f
    SET attempts = f.attempts + (f.position = ANY (v_first))::int, error = v_error, traceback = NULL, failed_at = t, due_at = t, token = NULL,
        first_failed_at = CASE WHEN f.attempts = 0 THEN t ELSE f.first_failed_at END, alone = NOT p_forgiving,
        retry_limit = CASE WHEN f.position = ANY (v_first) THEN v_limits[array_position(v_first, f.position)] ELSE f.retry_limit END,
        history = CASE WHEN f.attempts > 0 THEN fairlane.add_to_history(f.history, f.error, f.traceback, f.failed_at) ELSE f.history END
    WHERE f.partition_id = p_partition AND f.group_id = p_group AND f.token = ANY (v_tokens);
    v_held := ARRAY(SELECT g.pos FROM fairlane.claims c CROSS JOIN LATERAL generate_series(c.first_pos, c.upto - 1) g(pos)
                    WHERE c.partition_id = p_partition AND c.group_id = p_group AND c.token = ANY (v_tokens));
    INSERT INTO fairlane.failures (partition_id, group_id, position, attempts, error, first_failed_at, failed_at, due_at, alone,
                                   retry_limit)
    SELECT p_partition, p_group, g.pos, (g.pos = ANY (v_first))::int, v_error, t, t, t, NOT p_forgiving,
           v_limits[array_position(v_first, g.pos)]
    FROM unnest(v_held) g(pos);
    DELETE FROM fairlane.claims c
    WHERE c.partition_id = p_partition AND c.group_id = p_group AND c.token = ANY (v_tokens);
END $$;
