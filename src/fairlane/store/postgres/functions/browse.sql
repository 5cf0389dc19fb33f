-- Reads partitions backwards, each below a time and a position: up to p_limit messages of each that were created at or after
-- p_since, with the beginning of their stored form. `item` is the index of the partition.
CREATE OR REPLACE FUNCTION fairlane.newest_messages(
    p_ids bigint[], p_until timestamptz[], p_below bigint[], p_since timestamptz, p_limit int, p_bytes int
) RETURNS TABLE (item int, pos bigint, at timestamptz, head bytea)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    v_start bigint;
    v_below bigint;
    v_left bigint;
    v_got bigint;
    s record;
BEGIN
    FOR i IN 1 .. cardinality(p_ids) LOOP
        SELECT p.start INTO v_start FROM fairlane.partitions p WHERE p.id = p_ids[i];
        CONTINUE WHEN NOT FOUND;
        v_below := least(p_below[i], fairlane.position_at(p_ids[i], p_until[i]));
        v_left := p_limit;
        FOR s IN
            SELECT x.first_pos, x.n, x.created_at FROM fairlane.segments x
            WHERE x.partition_id = p_ids[i] AND x.first_pos < v_below ORDER BY x.first_pos DESC
        LOOP
            EXIT WHEN v_left <= 0 OR s.created_at < p_since OR least(v_below, s.first_pos + s.n) <= v_start;
            RETURN QUERY
            SELECT i, g.pos, s.created_at,
                   substring(b.body FROM coalesce(b.ends[(g.pos - s.first_pos)::int], 0) + 1
                             FOR least(p_bytes, b.ends[(g.pos - s.first_pos)::int + 1]
                                                - coalesce(b.ends[(g.pos - s.first_pos)::int], 0)))
            FROM (SELECT h AS pos
                  FROM generate_series(least(v_below, s.first_pos + s.n) - 1, greatest(v_start, s.first_pos), -1) h
                  WHERE NOT EXISTS (SELECT 1 FROM fairlane.skips k WHERE k.partition_id = p_ids[i]
                                    AND k.position = h AND k.group_id = 0)
                  LIMIT v_left) g
            CROSS JOIN fairlane.segments b
            WHERE b.partition_id = p_ids[i] AND b.first_pos = s.first_pos
            ORDER BY g.pos DESC;
            GET DIAGNOSTICS v_got = ROW_COUNT;
            v_left := v_left - v_got;
        END LOOP;
    END LOOP;
END $$;

-- Deletes a message for every group, with its records. False if it does not exist.
CREATE OR REPLACE FUNCTION fairlane.delete_message(
    p_partition bigint, p_position bigint, p_transaction_id text, p_now timestamptz
) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_queue bigint := fairlane.lock_partition(p_partition);
    c record;
    v_groups bigint[];
    v_upto bigint;
BEGIN
    IF v_queue IS NULL OR NOT fairlane.has_message(p_partition, p_position) THEN
        RETURN false;
    END IF;
    t := coalesce(p_now, clock_timestamp());
    UPDATE fairlane.queues q SET depth = q.depth - 1
    WHERE q.id = v_queue AND (q.options ->> 'max_size')::bigint > 0
      AND fairlane.is_open(p_partition, p_position);
    v_groups := ARRAY(SELECT k.group_id FROM fairlane.cursors k WHERE k.partition_id = p_partition AND k.claimed > 0);
    FOR i IN 1 .. cardinality(v_groups) LOOP
        PERFORM fairlane.take_claims(p_partition, v_groups[i], NULL, p_position, p_position + 1, t);
    END LOOP;
    DELETE FROM fairlane.skips x WHERE x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.failures x WHERE x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.dead_letters x WHERE x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.results x WHERE x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.cancellations x WHERE x.partition_id = p_partition AND x.position = p_position;
    DELETE FROM fairlane.traces x
    WHERE x.partition_id = p_partition AND x.transaction_id = p_transaction_id;
    DELETE FROM fairlane.trace_names x
    WHERE x.partition_id = p_partition AND x.transaction_id = p_transaction_id;
    INSERT INTO fairlane.skips (partition_id, position, group_id, created_at)
    VALUES (p_partition, p_position, 0, t);
    PERFORM fairlane.skip_undeliverable(v_queue, p_partition, 0, t);
    FOR c IN SELECT k.group_id, k.committed, k.claimed FROM fairlane.cursors k
             WHERE k.partition_id = p_partition AND k.claimed > k.committed
    LOOP
        v_upto := fairlane.watermark(p_partition, c.group_id, c.committed, c.claimed);
        UPDATE fairlane.cursors k SET committed = v_upto WHERE k.partition_id = p_partition AND k.group_id = c.group_id;
    END LOOP;
    RETURN true;
END $$;

-- Removes rows below the start of some partitions, up to p_limit segments. False if there are none.
CREATE OR REPLACE FUNCTION fairlane.trim(p_limit int, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[] := ARRAY(SELECT t.partition_id FROM fairlane.trims t  LIMIT 500);
BEGIN
    IF cardinality(v_ids) = 0 THEN
        RETURN false;
    END IF;
    IF fairlane.trim_log(v_ids, p_limit, p_now) >= p_limit THEN
        RETURN true;
    END IF;
    PERFORM fairlane.trim_records(v_ids);
    DELETE FROM fairlane.traced x USING fairlane.partitions p
    WHERE x.partition_id = ANY (v_ids) AND p.id = x.partition_id AND x.position < p.start;
    -- Records are newer than their message, so records from before the first remaining message have no message.
    DELETE FROM fairlane.traces x USING fairlane.partitions p
    WHERE x.partition_id = ANY (v_ids) AND p.id = x.partition_id
      AND (p.start = p.head OR x.created_at < (SELECT s.created_at FROM fairlane.segments s
           WHERE s.partition_id = p.id AND s.first_pos <= p.start ORDER BY s.first_pos DESC LIMIT 1));
    DELETE FROM fairlane.trace_names x
    WHERE x.partition_id = ANY (v_ids)
      AND NOT EXISTS (SELECT 1 FROM fairlane.traces t WHERE t.partition_id = x.partition_id
                      AND t.transaction_id = x.transaction_id AND t.id = x.trace_id);
    -- Under the locks of the partitions: a concurrent change of a start requests the removal of its rows.
    PERFORM 1 FROM fairlane.partitions p WHERE p.id = ANY (v_ids) ORDER BY p.id FOR NO KEY UPDATE;
    DELETE FROM fairlane.trims t WHERE t.partition_id = ANY (v_ids)
      AND NOT EXISTS (SELECT 1 FROM fairlane.segments x JOIN fairlane.partitions p ON p.id = x.partition_id
                      WHERE x.partition_id = t.partition_id AND x.first_pos < p.start
                        AND x.first_pos + x.n <= p.start)
      AND NOT EXISTS (SELECT 1 FROM fairlane.deleted_ids d WHERE d.partition_id = t.partition_id
                      AND d.first_pos < t.cleared);
    RETURN true;
END $$;
