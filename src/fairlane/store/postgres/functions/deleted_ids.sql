-- Ids outlive their messages: segments that go leave their ids behind for as long as the window of their queue lasts.

-- Whether an id that was found at a position is known: nobody took its message out, or cleared the partition.
CREATE OR REPLACE FUNCTION fairlane.is_known(p_shard int, p_partition bigint, p_position bigint) RETURNS boolean
LANGUAGE sql AS $$
    SELECT NOT EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = p_partition
                       AND x.position = p_position AND x.group_id = 0)
       AND NOT EXISTS (SELECT 1 FROM fairlane.trims t WHERE t.shard = p_shard AND t.partition_id = p_partition
                       AND t.cleared > p_position);
$$;

-- The deleted messages of a partition, created between two times, that have one of these keys. A row holds messages of up to a second,
-- by the time of its last.
CREATE OR REPLACE FUNCTION fairlane.deleted_matches(
    p_shard int, p_partition bigint, p_since timestamptz, p_until timestamptz, p_keys bigint[]
) RETURNS TABLE (item int, pos bigint, message_id text, transaction_id text)
LANGUAGE sql AS $$
    SELECT g.i::int, d.first_pos + k.i - 1, m.id::text, CASE WHEN d.transaction_ids IS NULL THEN m.id ELSE d.transaction_ids[k.i] END::text
    FROM fairlane.deleted_ids d
    CROSS JOIN LATERAL unnest(d.keys) WITH ORDINALITY k(key, i)
    CROSS JOIN LATERAL (SELECT encode(substring(d.message_ids FROM 16 * k.i::int - 15 FOR 16), 'hex')::uuid AS id) m
    JOIN unnest(p_keys) WITH ORDINALITY g(key, i) ON g.key = k.key
    WHERE d.shard = p_shard AND d.partition_id = p_partition AND d.created_at >= p_since AND d.created_at <= p_until + interval '1 s'
      AND d.keys && p_keys AND (d.transaction_ids IS NULL OR d.transaction_ids[k.i] IS NOT NULL);
$$;

-- The transactionIds of a segment that are UUIDs as everybody writes them; NULL for the others.
CREATE OR REPLACE FUNCTION fairlane.uuids_in(p_ends int[], p_body bytea) RETURNS uuid[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(CASE WHEN h.quote = '"' AND pg_input_is_valid(h.id, 'uuid')
                          THEN CASE WHEN h.id::uuid::text = h.id THEN h.id::uuid END END)
    FROM (SELECT encode(substring(p_body FROM e.low + 63 FOR 36), 'escape') AS id,
                 encode(substring(p_body FROM e.low + 99 FOR 1), 'escape') AS quote
          FROM unnest(0 || p_ends[: cardinality(p_ends) - 1]) e(low) OFFSET 0) h;
$$;

-- One array of many, in their order.
CREATE OR REPLACE AGGREGATE fairlane.join_arrays(anycompatiblearray) (SFUNC = array_cat, STYPE = anycompatiblearray);

-- Whether message_keys has ids of a partition; of most it has none.
CREATE OR REPLACE FUNCTION fairlane.has_keys(p_shard int, p_partition bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM fairlane.message_keys k WHERE k.shard = p_shard AND k.partition_id = p_partition);
$$;

-- Forgets rows of deleted_ids, with what message_keys has of them; how many there were.
CREATE OR REPLACE FUNCTION fairlane.forget(p_shard int, p_ids bigint[], p_created timestamptz[], p_first bigint[]) RETURNS bigint
LANGUAGE sql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    WITH gone AS (
        DELETE FROM fairlane.deleted_ids d USING unnest(p_ids, p_created, p_first) u(id, created_at, first_pos)
        WHERE d.shard = p_shard AND d.partition_id = u.id AND d.created_at = u.created_at AND d.first_pos = u.first_pos
        RETURNING d.partition_id, d.first_pos, d.keys),
    forgotten AS (
        DELETE FROM fairlane.message_keys k
        USING (SELECT g.partition_id, g.first_pos, unnest(g.keys) AS key, cardinality(g.keys) AS n FROM gone g
               WHERE fairlane.has_keys(p_shard, g.partition_id)) f
        WHERE k.shard = p_shard AND k.partition_id = f.partition_id AND k.key = f.key
          AND k.position >= f.first_pos AND k.position < f.first_pos + f.n)
    SELECT count(*) FROM gone;
$$;

-- Removes up to p_limit segments of these partitions that lie below the start, and ids that a clear forgets; how many rows. The ids of a
-- segment are kept while their queue's window lasts. The stored form of a message begins with its ids, each in its place: the
-- message's at 8, the transactionId's at 63 if it has the 36 characters of a UUID.
CREATE OR REPLACE FUNCTION fairlane.trim_log(p_shard int, p_ids bigint[], p_limit int, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_segments bigint;
    v_ids bigint;
BEGIN
    -- No push waits for the disk because of this; what a crash takes back is done again.
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH gone AS (
        DELETE FROM fairlane.segments s
        USING (SELECT x.partition_id, x.first_pos, p.seconds, p.cleared
               FROM (SELECT y.id, y.start, (q.options ->> 'dedup_seconds')::bigint AS seconds, coalesce(c.cleared, 0) AS cleared
                     FROM fairlane.partitions y JOIN fairlane.queues q ON q.id = y.queue_id
                     LEFT JOIN fairlane.trims c ON c.shard = p_shard AND c.partition_id = y.id
                     WHERE y.shard = p_shard AND y.id = ANY (p_ids) OFFSET 0) p
               JOIN fairlane.segments x ON x.shard = p_shard AND x.partition_id = p.id
               WHERE x.first_pos < p.start AND x.first_pos + x.n <= p.start LIMIT p_limit) d
        WHERE s.shard = p_shard AND s.partition_id = d.partition_id AND s.first_pos = d.first_pos
        RETURNING s.partition_id, s.first_pos, s.created_at, s.keys, s.ends, s.body,
                  s.created_at + make_interval(secs => d.seconds) AS forget_at,
                  s.created_at + make_interval(secs => d.seconds) > t AND s.first_pos >= d.cleared AS known),
    ids AS (
        SELECT g.partition_id, g.first_pos, g.created_at, g.forget_at, g.keys, i.message_ids,
               CASE WHEN i.transaction_ids <> i.message_ids THEN fairlane.uuids_in(g.ends, g.body) END AS transaction_ids
        FROM gone g
        CROSS JOIN LATERAL (
            SELECT string_agg(substring(g.body FROM e.low + 8 FOR 36), '') AS message_ids,
                   string_agg(substring(g.body FROM e.low + 63 FOR 36), '') AS transaction_ids
            FROM unnest(0 || g.ends[: cardinality(g.ends) - 1]) e(low)) i
        WHERE g.known),
    -- Segments that follow each other and were written in one second leave one row together: a row costs more than the ids in it.
    kept AS (
        INSERT INTO fairlane.deleted_ids (shard, partition_id, created_at, first_pos, forget_at, keys, message_ids, transaction_ids)
        SELECT p_shard, i.partition_id, max(i.created_at), min(i.first_pos), max(i.forget_at),
               fairlane.join_arrays(i.keys ORDER BY i.first_pos),
               decode(replace(encode(string_agg(i.message_ids, '' ORDER BY i.first_pos), 'escape'), '-', ''), 'hex'),
               fairlane.join_arrays(i.transaction_ids ORDER BY i.first_pos)
        FROM (SELECT i.*, i.transaction_ids IS NULL AS same, date_trunc('second', i.created_at) AS second,
                     sum(cardinality(i.keys)) OVER (
                         PARTITION BY i.partition_id, i.transaction_ids IS NULL, date_trunc('second', i.created_at)
                         ORDER BY i.first_pos) AS upto
              FROM ids i) i
        GROUP BY i.partition_id, i.same, i.second, i.first_pos + cardinality(i.keys) - i.upto, i.upto / 1024),
    forgotten AS (
        DELETE FROM fairlane.message_keys k
        USING (SELECT g.partition_id, g.first_pos, unnest(g.keys) AS key, cardinality(g.keys) AS n FROM gone g
               WHERE NOT g.known AND fairlane.has_keys(p_shard, g.partition_id)) f
        WHERE k.shard = p_shard AND k.partition_id = f.partition_id AND k.key = f.key
          AND k.position >= f.first_pos AND k.position < f.first_pos + f.n)
    SELECT count(*) INTO v_segments FROM gone;

    SELECT fairlane.forget(p_shard, array_agg(x.partition_id), array_agg(x.created_at), array_agg(x.first_pos)) INTO v_ids
    FROM (SELECT d.partition_id, d.created_at, d.first_pos FROM fairlane.trims c
          JOIN fairlane.deleted_ids d ON d.shard = p_shard AND d.partition_id = c.partition_id AND d.first_pos < c.cleared
          WHERE c.shard = p_shard AND c.partition_id = ANY (p_ids) AND c.cleared > 0 LIMIT p_limit) x;
    RETURN v_segments + v_ids;
END $$;

-- Forgets up to p_limit rows of deleted_ids whose window has passed, with what was kept beside them; how many.
CREATE OR REPLACE FUNCTION fairlane.forget_ids(p_shard int, p_limit int, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v record;
    v_gone bigint;
BEGIN
    SELECT array_agg(x.partition_id) AS ids, array_agg(x.created_at) AS created, array_agg(x.first_pos) AS firsts INTO v
    FROM (SELECT d.partition_id, d.created_at, d.first_pos FROM fairlane.deleted_ids d
          WHERE d.shard = p_shard AND d.forget_at <= t ORDER BY d.forget_at LIMIT p_limit) x;
    IF v.ids IS NULL THEN
        RETURN 0;
    END IF;
    v_gone := fairlane.forget(p_shard, v.ids, v.created, v.firsts);
    PERFORM fairlane.trim_beside(p_shard, ARRAY(SELECT DISTINCT i FROM unnest(v.ids) i));
    RETURN v_gone;
END $$;

-- Removes results, and marks of messages that were taken out, of which neither message nor id is left.
CREATE OR REPLACE FUNCTION fairlane.trim_beside(p_shard int, p_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v record;
BEGIN
    SELECT array_agg(p.id) AS ids, array_agg(least(
               p.start,
               (SELECT s.first_pos FROM fairlane.segments s WHERE s.shard = p_shard AND s.partition_id = p.id
                ORDER BY s.first_pos LIMIT 1),
               (SELECT d.first_pos FROM fairlane.deleted_ids d WHERE d.shard = p_shard AND d.partition_id = p.id
                ORDER BY d.created_at, d.first_pos LIMIT 1))) AS first INTO v
    FROM fairlane.partitions p
    WHERE p.shard = p_shard AND p.id = ANY (p_ids)
      AND (EXISTS (SELECT 1 FROM fairlane.results r WHERE r.shard = p_shard AND r.partition_id = p.id AND r.position < p.start)
           OR EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.shard = p_shard AND x.partition_id = p.id AND x.position < p.start));
    DELETE FROM fairlane.results r USING unnest(v.ids, v.first) u(id, first)
    WHERE r.shard = p_shard AND r.partition_id = u.id AND r.position < u.first;
    DELETE FROM fairlane.skips x USING unnest(v.ids, v.first) u(id, first)
    WHERE x.shard = p_shard AND x.partition_id = u.id AND x.position < u.first;
END $$;
