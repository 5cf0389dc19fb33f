-- Keeps messages of one shard until they are due. What has one value per message is flattened, as for push. One row per message: k kept,
-- d known already, g its partition is gone; none if it must be tried again.
CREATE OR REPLACE FUNCTION fairlane.schedule(
    p_shard int,
    p_ids bigint[],
    p_queues bigint[],
    p_names text[],
    p_upto int[],
    p_window int[],
    p_keys bigint[],
    p_id_times bigint[],
    p_given boolean[],
    p_due timestamptz[],      -- NULL: p_delay_ms from now
    p_delay_ms bigint[],
    p_message_ids text[],
    p_transaction_ids text[],
    p_messages bytea[],
    p_now timestamptz
) RETURNS TABLE (kind "char", item int, due_at timestamptz, pos bigint, head bytea, message_id text, transaction_id text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_skip boolean[] := array_fill(false, ARRAY[cardinality(p_keys)]);
    lo int;
    v record;
    r record;
BEGIN
    FOR i IN 1 .. cardinality(p_ids) LOOP
        lo := coalesce(p_upto[i - 1], 0) + 1;
        SELECT p.newest_id_ms, p.keyed_until_ms INTO v
        FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id
        WHERE p.shard = p_shard AND p.id = p_ids[i] AND p.queue_id = p_queues[i];
        IF NOT FOUND THEN
            FOR j IN lo .. p_upto[i] LOOP
                v_skip[j] := true;
                RETURN QUERY SELECT 'g'::"char", j, NULL::timestamptz, 0::bigint, NULL::bytea, NULL::text, NULL::text;
            END LOOP;
            CONTINUE;
        END IF;
        CONTINUE WHEN p_window[i] = 0 OR NOT true = ANY (p_given[lo : p_upto[i]]);
        FOR r IN SELECT * FROM fairlane.look_up(p_shard, p_ids[i], p_keys[lo : p_upto[i]], p_id_times[lo : p_upto[i]],
                                                v.newest_id_ms, v.keyed_until_ms, t, p_window[i]) f
                 WHERE fairlane.is_there(p_shard, p_ids[i], f.pos)
        LOOP
            CONTINUE WHEN v_skip[lo + r.item - 1];
            v_skip[lo + r.item - 1] := true;
            RETURN QUERY SELECT 'd'::"char", lo + r.item - 1, NULL::timestamptz, r.pos, r.head, r.message_id, r.transaction_id;
        END LOOP;
    END LOOP;

    INSERT INTO fairlane.scheduled (shard, due_at, message_id, partition_id, queue_id, partition_name, key, id_ms, given,
                                    transaction_id, message)
    SELECT p_shard, coalesce(p_due[m.i], t + make_interval(secs => p_delay_ms[m.i] / 1000.0)), p_message_ids[m.i], m.id,
           m.queue_id, m.name, p_keys[m.i], p_id_times[m.i], p_given[m.i], p_transaction_ids[m.i], p_messages[m.i]
    FROM (SELECT s.id, s.queue_id, s.name, j AS i
          FROM unnest(p_ids, p_queues, p_names, p_upto) WITH ORDINALITY s(id, queue_id, name, upto, i)
          CROSS JOIN LATERAL generate_series(coalesce(p_upto[s.i::int - 1], 0) + 1, s.upto) j) m
    WHERE NOT v_skip[m.i]
    ORDER BY m.id, p_keys[m.i]
    ON CONFLICT (shard, partition_id, key) DO NOTHING;

    RETURN QUERY
    SELECT CASE WHEN x.message_id = p_message_ids[m.i] THEN 'k' ELSE 'd' END::"char", m.i, x.due_at, -1::bigint, NULL::bytea,
           x.message_id, x.transaction_id
    FROM (SELECT s.id, j AS i FROM unnest(p_ids, p_upto) WITH ORDINALITY s(id, upto, i)
          CROSS JOIN LATERAL generate_series(coalesce(p_upto[s.i::int - 1], 0) + 1, s.upto) j) m
    JOIN fairlane.scheduled x ON x.shard = p_shard AND x.partition_id = m.id AND x.key = p_keys[m.i]
    WHERE NOT v_skip[m.i];
END $$;
