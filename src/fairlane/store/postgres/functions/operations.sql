-- Appends operations to their backlogs. Returns one row for each: enqueued, full or gone. Locks are taken in the order of a push:
-- limited queues, partitions, then dependent rows.
CREATE OR REPLACE FUNCTION fairlane.enqueue_operations(
    p_limited bigint[],            -- queues that the caller knows to have a max_size
    p_ids uuid[],
    p_types text[],
    p_priorities int[],
    p_partitions bigint[],
    p_queues bigint[],
    p_groups bigint[],
    p_messages int[],
    p_payloads bytea[],
    p_tenants text[],
    p_queue_names text[],
    p_partition_names text[],
    p_group_names text[],
    p_created timestamptz[],       -- NULL: now
    p_now timestamptz
) RETURNS TABLE (state text, item int, queue_position bigint, depth bigint, capacity bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_custom_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_n int := cardinality(p_ids);
    v_there bigint[];
    v_next bigint[];
    v_live bigint[];
    v_known uuid[];
    v_state text[];
    v_depth bigint[] := array_fill(NULL::bigint, ARRAY[v_n]);
    v_capacity bigint[] := v_depth;
    v_full bigint[] := '{}';
    r record;
BEGIN
    IF p_limited <> '{}' THEN
        PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (p_limited) ORDER BY q.id FOR UPDATE;
    END IF;
    SELECT array_agg(x.id), array_agg(x.next_operation) INTO v_there, v_next
    FROM (SELECT p.id, p.next_operation FROM fairlane.partitions p
          WHERE p.id = ANY (p_partitions) ORDER BY p.id FOR NO KEY UPDATE) x;
    -- Under the locks: a queue that was deleted or got a limit since the caller read it.
    SELECT array_agg(q.id) INTO v_live FROM fairlane.queues q
    WHERE q.id = ANY (p_queues) AND NOT ((q.options ->> 'max_size')::bigint > 0 AND q.id <> ALL (p_limited));
    SELECT array_agg(o.id) INTO v_known FROM fairlane.operations o WHERE o.id = ANY (p_ids);
    t := coalesce(p_now, clock_timestamp());

    -- Joined and unnested, never by subscript, which scans the array from the start if elements differ in length.
    SELECT array_agg(CASE WHEN k.id IS NOT NULL THEN 'known'
                          WHEN h.id IS NOT NULL AND s.queue_id = ANY (v_live) THEN 'enqueued' ELSE 'gone' END ORDER BY s.i)
    INTO v_state
    FROM unnest(p_ids, p_partitions, p_queues) WITH ORDINALITY s(id, partition_id, queue_id, i)
    LEFT JOIN unnest(v_known) k(id) ON k.id = s.id
    LEFT JOIN unnest(v_there) h(id) ON h.id = s.partition_id;

    IF p_limited <> '{}' THEN
        FOR r IN SELECT q.id, q.depth, (q.options ->> 'max_size')::bigint AS capacity FROM fairlane.queues q
                 WHERE q.id = ANY (p_limited) AND (q.options ->> 'max_size')::bigint > 0
        LOOP
            FOR i IN 1 .. v_n LOOP
                CONTINUE WHEN p_queues[i] <> r.id OR v_state[i] <> 'enqueued';
                v_capacity[i] := r.capacity;
                IF p_messages[i] > 0 AND (r.depth + p_messages[i] > r.capacity OR p_partitions[i] = ANY (v_full)) THEN
                    v_state[i] := 'full';
                    IF p_created[i] IS NOT NULL THEN  -- accepted earlier, so later operations of its partition must not overtake it
                        v_full := v_full || p_partitions[i];
                    END IF;
                ELSE
                    r.depth := r.depth + p_messages[i];
                END IF;
                v_depth[i] := r.depth;
            END LOOP;
            UPDATE fairlane.queues q SET depth = r.depth WHERE q.id = r.id;
        END LOOP;
    END IF;

    INSERT INTO fairlane.operations (partition_id, group_id, sequence, id, type, priority, tenant, queue,
                                     partition_name, "group", queue_id, payload, size, messages, created_at)
    SELECT u.partition_id, u.group_id,
           p.next_operation + row_number() OVER (PARTITION BY u.partition_id ORDER BY u.i) - 1, u.id, u.type, u.priority,
           u.tenant, u.queue, u.partition_name, u."group", u.queue_id, u.payload, length(u.payload), u.messages,
           least(u.created_at, t)
    FROM unnest(p_ids, p_types, p_priorities, p_partitions, p_queues, p_groups, p_messages, p_payloads, p_tenants,
                p_queue_names, p_partition_names, p_group_names, p_created, v_state) WITH ORDINALITY
         u(id, type, priority, partition_id, queue_id, group_id, messages, payload, tenant, queue, partition_name, "group",
           created_at, state, i)
    JOIN unnest(v_there, v_next) p(id, next_operation) ON p.id = u.partition_id
    WHERE u.state = 'enqueued';

    INSERT INTO fairlane.operation_backlogs AS l
           (partition_id, group_id, queue_id, tenant, queue, partition_name, "group", priority, open, messages,
            next_sequence, ready_at, moved_at)
    SELECT u.partition_id, u.group_id, min(u.queue_id), min(u.tenant), min(u.queue), min(u.partition_name),
           min(u."group"), min(u.priority), count(*), sum(u.messages), min(p.next_operation), t, t
    FROM unnest(p_priorities, p_partitions, p_queues, p_groups, p_messages, p_tenants, p_queue_names, p_partition_names,
                p_group_names, v_state)
         u(priority, partition_id, queue_id, group_id, messages, tenant, queue, partition_name, "group", state)
    JOIN unnest(v_there, v_next) p(id, next_operation) ON p.id = u.partition_id
    WHERE u.state = 'enqueued'
    GROUP BY u.partition_id, u.group_id ORDER BY u.partition_id, u.group_id
    ON CONFLICT (partition_id, group_id) DO UPDATE
    SET open = l.open + excluded.open, messages = l.messages + excluded.messages;

    UPDATE fairlane.partitions p
    SET next_operation = p.next_operation + u.n, open_operations = p.open_operations + u.pushes,
        open_acks = p.open_acks + u.n - u.pushes
    FROM (SELECT s.partition_id, count(*) AS n, count(*) FILTER (WHERE s.group_id = 0) AS pushes
          FROM unnest(p_partitions, p_groups, v_state) s(partition_id, group_id, state)
          WHERE s.state = 'enqueued' GROUP BY s.partition_id) u
    WHERE p.id = u.partition_id;

    RETURN QUERY
    SELECT CASE WHEN s.state = 'known' THEN 'enqueued' ELSE s.state END, s.i::int,
           -- The count of the backlog, without later operations of this call.
           greatest(1, coalesce(l.open, 0) - count(*) FILTER (WHERE s.state = 'enqueued') OVER (
               PARTITION BY s.partition_id, s.group_id ORDER BY s.i DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
           v_depth[s.i], v_capacity[s.i]
    FROM unnest(v_state, p_partitions, p_groups) WITH ORDINALITY s(state, partition_id, group_id, i)
    LEFT JOIN fairlane.operation_backlogs l
           ON l.partition_id = s.partition_id AND l.group_id = s.group_id;
END $$;

-- Claims ready backlogs for a worker, and returns the oldest operations of each.
CREATE OR REPLACE FUNCTION fairlane.claim_operations(
    p_worker text, p_token uuid, p_lanes int, p_run int, p_bytes bigint, p_timeout interval, p_now timestamptz
) RETURNS SETOF fairlane.operations
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_custom_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    t_end timestamptz := t + p_timeout;
    v_partitions bigint[];
    v_groups bigint[];
    v_sequences bigint[];
BEGIN
    SELECT array_agg(x.partition_id), array_agg(x.group_id), array_agg(x.next_sequence)
    INTO v_partitions, v_groups, v_sequences
    FROM (SELECT l.partition_id, l.group_id, l.next_sequence FROM fairlane.operation_backlogs l
          -- No claim or retry lasts twice the timeout: the clock was ahead then.
          WHERE (l.ready_at <= t OR l.ready_at > t_end + p_timeout)
          ORDER BY l.priority, l.ready_at LIMIT p_lanes FOR UPDATE SKIP LOCKED) x;
    IF v_partitions IS NULL THEN
        RETURN;
    END IF;
    UPDATE fairlane.operation_backlogs l SET ready_at = t_end, claim = p_token
    FROM unnest(v_partitions, v_groups) u(partition_id, group_id)
    WHERE l.partition_id = u.partition_id AND l.group_id = u.group_id;
    -- Operations that a dead worker had started and this claim does not include become pending again.
    RETURN QUERY
    UPDATE fairlane.operations o
    SET status = 'processing', started_at = t, worker = p_worker
    FROM (SELECT x.partition_id, x.group_id, x.sequence
          FROM unnest(v_partitions, v_groups, v_sequences) u(partition_id, group_id, sequence)
          CROSS JOIN LATERAL (
              SELECT w.partition_id, w.group_id, w.sequence,
                     sum(w.size) OVER (ORDER BY w.sequence) - w.size AS before
              FROM (SELECT f.partition_id, f.group_id, f.sequence, f.size FROM fairlane.operations f
                    WHERE f.partition_id = u.partition_id AND f.group_id = u.group_id
                      AND f.sequence >= u.sequence AND f.status IN ('pending', 'processing')
                    ORDER BY f.sequence LIMIT p_run) w) x
          WHERE x.before < p_bytes) y
    WHERE o.partition_id = y.partition_id AND o.group_id = y.group_id AND o.sequence = y.sequence
    RETURNING o.*;
END $$;

-- The first half of applying: returns the backlogs that the caller still holds. Until `finish_operations` in the same transaction
-- their pushes and acks do not block themselves, and their reserved capacity is free. The caller has locked queues and
-- partitions.
CREATE OR REPLACE FUNCTION fairlane.begin_operations(p_partitions bigint[], p_groups bigint[], p_claims uuid[],
                                                     p_messages int[])
RETURNS TABLE (item int, open int)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_custom_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    v_items int[];
    v_open int[];
BEGIN
    PERFORM 1 FROM fairlane.operation_backlogs l JOIN unnest(p_partitions, p_groups) u(partition_id, group_id)
                   ON l.partition_id = u.partition_id AND l.group_id = u.group_id
     ORDER BY l.partition_id, l.group_id FOR UPDATE OF l;
    SELECT array_agg(u.i::int), array_agg(coalesce(p.open_operations, 0)) INTO v_items, v_open
    FROM unnest(p_partitions, p_groups, p_claims) WITH ORDINALITY u(partition_id, group_id, claim, i)
    JOIN fairlane.operation_backlogs l
         ON l.partition_id = u.partition_id AND l.group_id = u.group_id AND l.claim = u.claim
    LEFT JOIN fairlane.partitions p ON p.id = u.partition_id;
    UPDATE fairlane.partitions p SET open_operations = 0
    FROM unnest(v_items) i WHERE p.id = p_partitions[i] AND p_groups[i] = 0;
    UPDATE fairlane.operation_backlogs l SET passing = true
    FROM unnest(v_items) i
    WHERE l.partition_id = p_partitions[i] AND l.group_id = p_groups[i] AND p_groups[i] <> 0;
    PERFORM fairlane.free_capacity(p_partitions, p_messages, v_items, -1);
    RETURN QUERY SELECT * FROM unnest(v_items, v_open);
END $$;

-- Adds or subtracts the messages of these items in the depth of limited queues.
CREATE OR REPLACE FUNCTION fairlane.free_capacity(p_partitions bigint[], p_messages int[], p_items int[], p_sign int)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM unnest(p_items) i WHERE p_messages[i] > 0) THEN
        UPDATE fairlane.queues q SET depth = q.depth + p_sign * u.n
        FROM (SELECT p.queue_id, sum(p_messages[i]) AS n FROM unnest(p_items) i
              JOIN fairlane.partitions p ON p.id = p_partitions[i] GROUP BY p.queue_id) u
        WHERE q.id = u.queue_id AND (q.options ->> 'max_size')::bigint > 0;
    END IF;
END $$;

-- The second half: completes the operations of applied backlogs, and restores the others.
CREATE OR REPLACE FUNCTION fairlane.finish_operations(
    p_partitions bigint[], p_groups bigint[], p_messages int[], p_items int[], p_open int[], p_applied boolean[],
    p_done_item int[],             -- for each completed operation the backlog it belongs to, as its index
    p_done_sequence bigint[],
    p_done_result bytea[],
    p_now timestamptz
) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_refused int[];
BEGIN
    SELECT array_agg(u.i) INTO v_refused FROM unnest(p_items, p_applied) u(i, applied) WHERE NOT u.applied;
    PERFORM fairlane.free_capacity(p_partitions, p_messages, v_refused, 1);
    UPDATE fairlane.operations o
    SET status = 'completed', processed_at = t, payload = '', result = u.result, error = NULL
    FROM unnest(p_done_item, p_done_sequence, p_done_result) u(item, sequence, result)
    WHERE o.partition_id = p_partitions[u.item] AND o.group_id = p_groups[u.item]
      AND o.sequence = u.sequence;
    UPDATE fairlane.partitions p SET open_operations = u.open - u.n
    FROM (SELECT i.item, i.open, count(d.item) AS n FROM unnest(p_items, p_open) i(item, open)
          LEFT JOIN unnest(p_done_item) d(item) ON d.item = i.item GROUP BY i.item, i.open) u
    WHERE p.id = p_partitions[u.item] AND p_groups[u.item] = 0;
    IF 0 <> ANY (p_groups) THEN
        UPDATE fairlane.operation_backlogs l SET passing = false
        FROM unnest(p_items) i
        WHERE l.partition_id = p_partitions[i] AND l.group_id = p_groups[i] AND l.passing;
        UPDATE fairlane.partitions p SET open_acks = greatest(0, p.open_acks - u.n)
        FROM (SELECT p_partitions[d.item] AS id, count(*) AS n FROM unnest(p_done_item) d(item)
              WHERE p_groups[d.item] <> 0 GROUP BY 1) u
        WHERE p.id = u.id;
    END IF;
    PERFORM fairlane.advance_backlogs(array_agg(p_partitions[u.item]), array_agg(p_groups[u.item]), array_agg(u.n::int),
                                   array_agg(p_messages[u.item]), array_agg(u.last + 1), t)
    FROM (SELECT d.item, count(*) AS n, max(d.sequence) AS last FROM unnest(p_done_item, p_done_sequence) d(item, sequence)
          GROUP BY d.item) u;
END $$;

-- Updates backlogs whose operations ended: ready now, or deleted if none is open.
CREATE OR REPLACE FUNCTION fairlane.advance_backlogs(
    p_partitions bigint[], p_groups bigint[], p_ended int[], p_messages int[], p_next bigint[], p_at timestamptz
) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
BEGIN
    UPDATE fairlane.operation_backlogs l
    SET open = l.open - u.ended, messages = l.messages - u.messages, next_sequence = greatest(l.next_sequence, u.next),
        ready_at = p_at, moved_at = p_at, claim = NULL
    FROM unnest(p_partitions, p_groups, p_ended, p_messages, p_next) u(partition_id, group_id, ended, messages, next)
    WHERE l.partition_id = u.partition_id AND l.group_id = u.group_id;
    DELETE FROM fairlane.operation_backlogs l USING unnest(p_partitions, p_groups) u(partition_id, group_id)
    WHERE l.partition_id = u.partition_id AND l.group_id = u.group_id AND l.open <= 0;
END $$;

-- Ends one open operation without applying it, and frees its capacity and its backlog. The caller has locked the queue and the
-- partition, if they exist.
CREATE OR REPLACE FUNCTION fairlane.drop_operation(
    p_partition bigint, p_group bigint, p_sequence bigint, p_status text, p_error text, p_keep_claim boolean,
    p_now timestamptz
) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_messages int;
BEGIN
    UPDATE fairlane.operations o
    SET status = p_status, processed_at = t, error = coalesce(p_error, o.error),
        failed_at = CASE WHEN p_error IS NULL THEN o.failed_at ELSE t END
    WHERE o.partition_id = p_partition AND o.group_id = p_group AND o.sequence = p_sequence
    RETURNING o.messages INTO v_messages;
    PERFORM fairlane.free_capacity(ARRAY[p_partition], ARRAY[v_messages], ARRAY[1], -1);
    UPDATE fairlane.partitions p
    SET open_operations = greatest(0, p.open_operations - CASE WHEN p_group = 0 THEN 1 ELSE 0 END),
        open_acks = greatest(0, p.open_acks - CASE WHEN p_group = 0 THEN 0 ELSE 1 END)
    WHERE p.id = p_partition;
    IF p_keep_claim THEN
        UPDATE fairlane.operation_backlogs l SET open = l.open - 1, messages = l.messages - v_messages
        WHERE l.partition_id = p_partition AND l.group_id = p_group;
        DELETE FROM fairlane.operation_backlogs l
        WHERE l.partition_id = p_partition AND l.group_id = p_group AND l.open <= 0;
    ELSE
        PERFORM fairlane.advance_backlogs(ARRAY[p_partition], ARRAY[p_group], ARRAY[1], ARRAY[v_messages],
                                       ARRAY[p_sequence + 1], t);
    END IF;
END $$;
