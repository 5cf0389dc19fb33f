-- The named queues of a tenant, created if missing. A queue that a spec in force declares gets the options and the group of
-- commands of the spec; others get `p_options`. Queues that are deleted or created concurrently may be left out.
CREATE OR REPLACE FUNCTION fairlane.ensure(
    p_tenant text, p_names text[], p_namespaces text[], p_tasks text[], p_options text, p_now timestamptz
) RETURNS TABLE (id bigint, tenant text, name text, namespace text, task text, options jsonb, created_at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_tenant int;
    v_placed text;
BEGIN
    SELECT t.id INTO v_tenant FROM fairlane.tenants t WHERE t.name = p_tenant;
    -- In the home the lock makes `place` wait, so that a queue is either created here or placed elsewhere. The other cells have
    -- placements of the queues that were moved away.
    IF (EXISTS (SELECT FROM fairlane.cells) OR EXISTS (SELECT FROM fairlane.placed)) AND EXISTS (
        SELECT FROM unnest(p_names) w(name)
        WHERE NOT EXISTS (SELECT FROM fairlane.queues q WHERE q.tenant_id = v_tenant AND q.name = w.name)
    ) THEN
        PERFORM FROM fairlane.tenants t WHERE t.id = v_tenant FOR SHARE;
        SELECT min(p.queue) INTO v_placed FROM fairlane.placed p
        WHERE p.tenant = p_tenant AND p.queue = ANY (p_names)
          AND p.cell <> coalesce((SELECT i.cell FROM fairlane.identity i), 0);
        IF v_placed IS NOT NULL THEN
            RAISE EXCEPTION 'queue "%" is in another cell', v_placed USING ERRCODE = 'FL001';
        END IF;
    END IF;
    INSERT INTO fairlane.queues (tenant_id, name, namespace, task, options, created_at)
    SELECT v_tenant, w.name, w.namespace, w.task, coalesce(d.options, p_options::jsonb), t
    FROM unnest(p_names, p_namespaces, p_tasks) w(name, namespace, task)
    LEFT JOIN LATERAL (SELECT q.id FROM fairlane.queues q WHERE q.tenant_id = v_tenant AND q.name = w.name LIMIT 1) x ON true
    LEFT JOIN fairlane.declared_queues d ON d.tenant = p_tenant AND d.name = w.name
    WHERE x.id IS NULL AND v_tenant IS NOT NULL ORDER BY w.name  -- in one order, so that concurrent calls do not deadlock
    ON CONFLICT (tenant_id, name) DO NOTHING;
    IF FOUND THEN
        INSERT INTO fairlane.groups (queue_id, name, mode, created_at)
        SELECT q.id, '__COMMANDS__', 'all', t FROM fairlane.declared_queues d
        JOIN fairlane.queues q ON q.tenant_id = v_tenant AND q.name = d.name AND q.created_at = t  -- created above
        WHERE d.tenant = p_tenant AND d.name = ANY (p_names) AND d.mapped ON CONFLICT (queue_id, name) DO NOTHING;
    END IF;
    RETURN QUERY
    SELECT x.id, p_tenant, x.name, x.namespace, x.task, x.options, x.created_at
    FROM unnest(p_names) w(name)
    CROSS JOIN LATERAL (SELECT q.* FROM fairlane.queues q WHERE q.tenant_id = v_tenant AND q.name = w.name LIMIT 1) x;
END $$;

-- Places queues in a cell unless they exist. Returns the cell of each, 0 for a queue of this one.
CREATE OR REPLACE FUNCTION fairlane.place(p_tenant text, p_names text[], p_cell int) RETURNS TABLE (queue text, cell int)
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    v_tenant bigint;
BEGIN
    SELECT t.id INTO v_tenant FROM fairlane.tenants t WHERE t.name = p_tenant FOR NO KEY UPDATE;
    INSERT INTO fairlane.placed (tenant, queue, cell)
    SELECT p_tenant, w.name, p_cell FROM unnest(p_names) w(name)
    WHERE v_tenant IS NOT NULL
      AND NOT EXISTS (SELECT FROM fairlane.queues q WHERE q.tenant_id = v_tenant AND q.name = w.name)
    ON CONFLICT (tenant, queue) DO NOTHING;
    RETURN QUERY SELECT w.name, coalesce(p.cell, 0) FROM unnest(p_names) w(name)
    LEFT JOIN fairlane.placed p ON p.tenant = p_tenant AND p.queue = w.name;
END $$;

-- Deletes a queue whose row the caller has locked. `purge` removes its other rows.
CREATE OR REPLACE FUNCTION fairlane.drop_queue(p_queue bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := clock_timestamp();
BEGIN
    -- A message that is enqueued by name after this belongs to the next queue of the name.
    DELETE FROM fairlane.staged s USING fairlane.queues q WHERE q.id = p_queue AND s.tenant_id = q.tenant_id AND s.queue = q.name;
    DELETE FROM fairlane.queues q WHERE q.id = p_queue;
    DELETE FROM fairlane.starts s USING fairlane.groups g WHERE g.queue_id = p_queue AND s.group_id = g.id;
    DELETE FROM fairlane.groups g WHERE g.queue_id = p_queue;
    DELETE FROM fairlane.data_keys k WHERE k.queue_id = p_queue;
    INSERT INTO fairlane.purges VALUES (p_queue, t);
END $$;

-- Removes some partitions of a deleted queue with their data. False when there are none left.
CREATE OR REPLACE FUNCTION fairlane.purge(p_queue bigint) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
BEGIN
    -- A queue that is moved back takes the row away first.
    PERFORM FROM fairlane.purges x WHERE x.queue_id = p_queue FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_ids := ARRAY(SELECT p.id FROM fairlane.partitions p WHERE p.queue_id = p_queue
                   ORDER BY p.id LIMIT 200);
    IF cardinality(v_ids) = 0 THEN
        RETURN false;
    END IF;
    -- The scheduler locks segments before queues and partitions.
    PERFORM 1 FROM fairlane.scheduled_segments b WHERE b.partition_id = ANY (v_ids) ORDER BY b.id FOR UPDATE;
    PERFORM 1 FROM fairlane.partitions p WHERE p.id = ANY (v_ids) ORDER BY p.id FOR UPDATE;
    PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = ANY (v_ids)
    ORDER BY k.partition_id, k.group_id FOR UPDATE;
    PERFORM fairlane.clear_scheduled(v_ids);
    DELETE FROM fairlane.segments x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.message_keys x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.deleted_ids x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.cursors x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.claims x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.failures x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.skips x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.dead_letters x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.results x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.cancellations x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.cancelled_ids x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.traced x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.traces x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.trace_names x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.stream_state x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.trims x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.expiries x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.partitions x WHERE x.id = ANY (v_ids);
    RETURN true;
END $$;

-- The named partitions, each with its queue. With p_make, missing ones are created with a cursor for every group of their queue,
-- under the lock of the queue. Groups are created under the same lock, so no lane can lack its cursor. Partitions of deleted
-- queues are left out.
CREATE OR REPLACE FUNCTION fairlane.ensure_partitions(p_queues bigint[], p_names text[], p_make boolean, p_now timestamptz)
RETURNS TABLE (id bigint, queue_id bigint, name text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_missing bigint[];
    v_queues bigint[];
    v_names text[];
BEGIN
    IF p_make THEN
        SELECT array_agg(DISTINCT w.queue_id) INTO v_missing
        FROM unnest(p_queues, p_names) w(queue_id, name)
        LEFT JOIN LATERAL (SELECT p.id FROM fairlane.partitions p
                           WHERE p.queue_id = w.queue_id AND p.name = w.name LIMIT 1) x ON true
        WHERE x.id IS NULL;
    END IF;
    IF v_missing IS NOT NULL THEN
        PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_missing) ORDER BY q.id FOR UPDATE;
        t := coalesce(p_now, clock_timestamp());
        SELECT array_agg(n.queue_id), array_agg(n.name) INTO v_queues, v_names
        FROM (SELECT DISTINCT w.queue_id, w.name FROM unnest(p_queues, p_names) w(queue_id, name)
              CROSS JOIN LATERAL (SELECT q.id FROM fairlane.queues q WHERE q.id = w.queue_id LIMIT 1) q
              LEFT JOIN LATERAL (SELECT p.id FROM fairlane.partitions p
                                 WHERE p.queue_id = w.queue_id AND p.name = w.name LIMIT 1) x ON true
              WHERE x.id IS NULL) n;
        INSERT INTO fairlane.partitions (queue_id, name, created_at, last_at)
        SELECT n.queue_id, n.name, t, t FROM unnest(v_queues, v_names) n(queue_id, name);
        INSERT INTO fairlane.cursors (partition_id, group_id, committed)
        SELECT x.id, g.id, 0 FROM unnest(v_queues, v_names) n(queue_id, name)
        JOIN fairlane.groups g ON g.queue_id = n.queue_id
        CROSS JOIN LATERAL (SELECT p.id FROM fairlane.partitions p
                            WHERE p.queue_id = n.queue_id AND p.name = n.name LIMIT 1) x;
    END IF;
    RETURN QUERY
    SELECT x.id, w.queue_id, w.name
    FROM unnest(p_queues, p_names) w(queue_id, name)
    CROSS JOIN LATERAL (SELECT p.id FROM fairlane.partitions p
                        WHERE p.queue_id = w.queue_id AND p.name = w.name LIMIT 1) x;
END $$;

-- Makes the lanes of a partition count as if they had waited this much longer, including ready ones.
CREATE OR REPLACE FUNCTION fairlane.set_priority(p_partition bigint, p_lead interval, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_before interval;
BEGIN
    SELECT p.priority_lead INTO v_before FROM fairlane.partitions p WHERE p.id = p_partition FOR NO KEY UPDATE;
    IF v_before IS DISTINCT FROM p_lead AND v_before IS NOT NULL THEN
        UPDATE fairlane.partitions p SET priority_lead = p_lead WHERE p.id = p_partition;
        PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = p_partition ORDER BY k.group_id FOR UPDATE;
        t := coalesce(p_now, clock_timestamp());
        UPDATE fairlane.cursors k SET ready_at = k.ready_at + v_before - p_lead
        WHERE k.partition_id = p_partition AND k.lease IS NULL AND k.ready_at <= least(t, t - v_before + p_lead);
    END IF;
    RETURN v_before IS NOT NULL;
END $$;

-- Messages of a queue that some counting group has not finished, or all retained ones without a group, plus the messages of open
-- operations, which reserve capacity.
CREATE OR REPLACE FUNCTION fairlane.count_unfinished(p_queue bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(p.head - m.done - h.holes
                        + CASE WHEN m.unordered THEN fairlane.in_flight(p.id, m.done) ELSE 0 END), 0)::bigint
         + (SELECT coalesce(sum(l.messages), 0)::bigint FROM fairlane.operation_backlogs l
            WHERE l.queue_id = p_queue)
    FROM fairlane.partitions p
    CROSS JOIN LATERAL (SELECT coalesce(min(greatest(c.committed, c.claimed)), p.start) AS done, bool_or(c.claimed > 0) AS unordered
                        FROM fairlane.counting c
                        WHERE c.partition_id = p.id) m
    CROSS JOIN LATERAL (SELECT count(*) AS holes FROM fairlane.skips s
                        WHERE s.partition_id = p.id AND s.position >= m.done AND s.group_id = 0) h
    WHERE p.queue_id = p_queue;
$$;

-- Makes lanes of a queue ready at once if they are stopped, or sleep no longer than the previous delay and window of the queue
-- allow: the next pop decides by the current options. Longer sleeps come from failures. The caller locked the cursors before this
-- statement, so pops in flight that postponed a lane have ended and are visible here.
CREATE OR REPLACE FUNCTION fairlane.wake(p_queue bigint, p_delay int, p_window int, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    UPDATE fairlane.cursors k SET ready_at = t
    FROM fairlane.partitions p
    WHERE p.queue_id = p_queue
      AND k.partition_id = p.id AND k.lease IS NULL AND k.ready_at > t
      AND (k.ready_at = fairlane.never()
           OR k.ready_at <= greatest(p.last_at + make_interval(secs => p_window),
                                     fairlane.due_at(p.id, k.committed, make_interval(secs => p_delay))));
END $$;

-- Deletes all messages of a queue's partitions, and their ids. Returns their number. p_partition 0 means all partitions. The
-- caller has locked their segments, then the queue, and recounts its depth.
CREATE OR REPLACE FUNCTION fairlane.clear(p_queue bigint, p_partition bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_cleared bigint;
BEGIN
    SELECT array_agg(x.id), sum(x.head - x.start) INTO v_ids, v_cleared
    FROM (SELECT p.id, p.head, p.start FROM fairlane.partitions p
          WHERE p.queue_id = p_queue AND (p_partition = 0 OR p.id = p_partition)
          ORDER BY p.id FOR NO KEY UPDATE) x;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = ANY (v_ids)
    ORDER BY k.partition_id, k.group_id FOR UPDATE;
    UPDATE fairlane.cursors k
    SET committed = p.head, claimed = 0, ready_at = NULL, lease = NULL, last_lease = NULL, probe_until = 0, failing = false
    FROM fairlane.partitions p
    WHERE k.partition_id = ANY (v_ids) AND p.id = k.partition_id;
    DELETE FROM fairlane.failures f WHERE f.partition_id = ANY (v_ids);
    DELETE FROM fairlane.claims c WHERE c.partition_id = ANY (v_ids);
    v_cleared := v_cleared - (
        SELECT count(*) FROM fairlane.skips x JOIN fairlane.partitions p ON p.id = x.partition_id
        WHERE x.partition_id = ANY (v_ids) AND x.group_id = 0 AND x.position >= p.start);
    DELETE FROM fairlane.skips x WHERE x.partition_id = ANY (v_ids);
    PERFORM fairlane.clear_scheduled(v_ids);
    INSERT INTO fairlane.trims (partition_id, cleared)
    SELECT p.id, p.head FROM fairlane.partitions p
    WHERE p.id = ANY (v_ids)
      AND (p.start < p.head
           OR EXISTS (SELECT 1 FROM fairlane.deleted_ids d WHERE d.partition_id = p.id))
    ON CONFLICT (partition_id) DO UPDATE SET cleared = excluded.cleared;
    UPDATE fairlane.partitions p SET start = p.head WHERE p.id = ANY (v_ids) AND p.start < p.head;
    -- Unused partitions are removed later.
    INSERT INTO fairlane.expiries (partition_id, queue_id, due_at)
    SELECT p.id, p.queue_id, p.last_at + interval '30 days' FROM fairlane.partitions p
    WHERE p.id = ANY (v_ids)
    ON CONFLICT DO NOTHING;
    RETURN v_cleared;
END $$;
