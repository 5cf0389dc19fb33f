-- Reads partitions of one shard backward, each from below a time and a position: up to p_limit messages of each that were
-- created at or after p_since, with the beginning of their stored form. `item` is the partition's index.
CREATE OR REPLACE FUNCTION fairlane.back(
    p_shard int, p_ids bigint[], p_until timestamptz[], p_below bigint[], p_since timestamptz, p_limit int, p_bytes int
) RETURNS TABLE (item int, pos bigint, at timestamptz, head bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v_start bigint;
    v_below bigint;
    v_left bigint;
    v_got bigint;
    s record;
BEGIN
    FOR i IN 1 .. cardinality(p_ids) LOOP
        SELECT p.start INTO v_start FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = p_ids[i];
        CONTINUE WHEN NOT FOUND;
        v_below := least(p_below[i], fairlane.position_at(p_shard, p_ids[i], p_until[i]));
        v_left := p_limit;
        FOR s IN
            SELECT x.first_pos, x.n, x.created_at FROM fairlane.segments x
            WHERE x.shard = p_shard AND x.partition_id = p_ids[i] AND x.first_pos < v_below ORDER BY x.first_pos DESC
        LOOP
            EXIT WHEN v_left <= 0 OR s.created_at < p_since OR least(v_below, s.first_pos + s.n) <= v_start;
            RETURN QUERY
            SELECT i, g.pos, s.created_at,
                   substring(b.body FROM coalesce(b.ends[(g.pos - s.first_pos)::int], 0) + 1
                             FOR least(p_bytes, b.ends[(g.pos - s.first_pos)::int + 1]
                                                - coalesce(b.ends[(g.pos - s.first_pos)::int], 0)))
            FROM (SELECT h AS pos
                  FROM generate_series(least(v_below, s.first_pos + s.n) - 1, greatest(v_start, s.first_pos), -1) h
                  WHERE NOT EXISTS (SELECT 1 FROM fairlane.skips k WHERE k.shard = p_shard AND k.partition_id = p_ids[i]
                                    AND k.position = h AND k.group_id = 0)
                  LIMIT v_left) g
            CROSS JOIN fairlane.segments b
            WHERE b.shard = p_shard AND b.partition_id = p_ids[i] AND b.first_pos = s.first_pos
            ORDER BY g.pos DESC;
            GET DIAGNOSTICS v_got = ROW_COUNT;
            v_left := v_left - v_got;
        END LOOP;
    END LOOP;
END $$;
