-- The first retained position of a partition that was created at or after a time; its head if there is none.
-- created_at never falls along a partition, so that a binary search over the primary key finds it without an index on time.
CREATE OR REPLACE FUNCTION fairlane.position_at(p_shard int, p_partition bigint, p_at timestamptz) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    lo bigint;
    hi bigint;
    s record;
BEGIN
    SELECT p.start, p.head INTO lo, hi FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = p_partition;
    WHILE lo < hi LOOP
        SELECT x.first_pos, x.n, x.created_at INTO s FROM fairlane.segments x
        WHERE x.shard = p_shard AND x.partition_id = p_partition AND x.first_pos <= (lo + hi) / 2
        ORDER BY x.first_pos DESC LIMIT 1;
        IF s.created_at >= p_at THEN
            hi := greatest(s.first_pos, lo);
            EXIT WHEN s.first_pos <= lo;
        ELSE
            lo := coalesce(s.first_pos + s.n, (lo + hi) / 2 + 1);
        END IF;
    END LOOP;
    RETURN lo;
END $$;

-- Where a batch of large messages ends: after the whole segments that fit into so many bytes, and after one message at least.
CREATE OR REPLACE FUNCTION fairlane.fitting(p_shard int, p_partition bigint, p_first bigint, p_upto bigint, p_bytes bigint) RETURNS bigint
LANGUAGE sql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT coalesce(max(x.last), p_first + 1)
    FROM (SELECT least(s.first_pos + s.n, p_upto) AS last, sum(octet_length(s.body)) OVER (ORDER BY s.first_pos) AS bytes
          FROM fairlane.segments s
          WHERE s.shard = p_shard AND s.partition_id = p_partition AND s.first_pos < p_upto
            AND s.first_pos >= (SELECT max(f.first_pos) FROM fairlane.segments f WHERE f.shard = p_shard
                                AND f.partition_id = p_partition AND f.first_pos <= p_first)) x
    WHERE x.bytes <= p_bytes;
$$;
