-- The named queues of a tenant, created if missing. A queue that a spec in force declares gets the options and the group of
-- commands of the spec; others get `p_options`. Queues that are deleted or created concurrently may be left out.
CREATE OR REPLACE FUNCTION fairlane.ensure(
    p_tenant text, p_names text[], p_namespaces text[], p_tasks text[], p_options text, p_now timestamptz
) RETURNS TABLE (id bigint, tenant text, name text, namespace text, task text, options jsonb, created_at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    v_tenant bigint;
    v_placed text;
    v_names text[];
    v_namespaces text[];
    v_tasks text[];
    v_options text[];
    v_mapped bigint[];
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
    SELECT array_agg(w.name), array_agg(w.namespace), array_agg(w.task), array_agg(coalesce(d.options::text, p_options))
    INTO v_names, v_namespaces, v_tasks, v_options
    FROM unnest(p_names, p_namespaces, p_tasks) w(name, namespace, task)
    LEFT JOIN fairlane.declared_queues d ON d.tenant = p_tenant AND d.name = w.name
    WHERE NOT EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.tenant_id = v_tenant AND q.name = w.name);
    IF v_tenant IS NOT NULL AND v_names IS NOT NULL THEN
        INSERT INTO fairlane.queues (id, tenant_id, name, namespace, task, options, created_at) OVERRIDING SYSTEM VALUE
        SELECT fairlane.new_id(nextval('fairlane.queues_id_seq')), v_tenant, n.name, n.namespace, n.task, n.options, t
        FROM (SELECT w.name, w.namespace, w.task, w.options::jsonb AS options
              FROM unnest(v_names, v_namespaces, v_tasks, v_options) w(name, namespace, task, options)
              ORDER BY w.name) n  -- in one order, so that concurrent calls do not deadlock
        ON CONFLICT (tenant_id, name) DO NOTHING;
        SELECT array_agg(q.id) INTO v_mapped FROM fairlane.declared_queues d
        JOIN fairlane.queues q ON q.tenant_id = v_tenant AND q.name = d.name AND q.created_at = t  -- created above
        WHERE d.tenant = p_tenant AND d.name = ANY (v_names) AND d.mapped;
        INSERT INTO fairlane.groups (id, queue_id, name, mode, created_at) OVERRIDING SYSTEM VALUE
        SELECT fairlane.new_id(nextval('fairlane.groups_id_seq')), m.id, '__COMMANDS__', 'all', t FROM unnest(v_mapped) m(id)
        ON CONFLICT (queue_id, name) DO NOTHING;
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
    DELETE FROM fairlane.progress x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.unique_keys x WHERE x.partition_id = ANY (v_ids);
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
    v_ids bigint[];
    v_groups bigint[];
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
        v_ids := ARRAY(SELECT fairlane.new_id(nextval('fairlane.partitions_id_seq')) FROM unnest(v_names));
        INSERT INTO fairlane.partitions (id, queue_id, name, created_at, last_at) OVERRIDING SYSTEM VALUE
        SELECT n.id, n.queue_id, n.name, t, t FROM unnest(v_ids, v_queues, v_names) n(id, queue_id, name);
        SELECT array_agg(n.id), array_agg(g.id) INTO v_ids, v_groups FROM unnest(v_ids, v_queues) n(id, queue_id)
        JOIN fairlane.groups g ON g.queue_id = n.queue_id;
        INSERT INTO fairlane.cursors (partition_id, group_id, committed)
        SELECT n.id, n.group_id, 0 FROM unnest(v_ids, v_groups) n(id, group_id);
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
    v_groups bigint[];
    v_ready timestamptz[];
    v_before interval;
BEGIN
    SELECT p.priority_lead INTO v_before FROM fairlane.partitions p WHERE p.id = p_partition FOR NO KEY UPDATE;
    IF v_before IS DISTINCT FROM p_lead AND v_before IS NOT NULL THEN
        UPDATE fairlane.partitions p SET priority_lead = p_lead WHERE p.id = p_partition;
        PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = p_partition ORDER BY k.group_id FOR UPDATE;
        t := coalesce(p_now, clock_timestamp());
        SELECT array_agg(k.group_id), array_agg(k.ready_at + v_before - p_lead) INTO v_groups, v_ready FROM fairlane.cursors k
        WHERE k.partition_id = p_partition AND k.lease IS NULL AND k.ready_at <= least(t, t - v_before + p_lead);
        UPDATE fairlane.cursors k SET ready_at = u.ready_at FROM unnest(v_groups, v_ready) u(group_id, ready_at)
        WHERE k.partition_id = p_partition AND k.group_id = u.group_id;
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
    v_ids bigint[];
    v_groups bigint[];
BEGIN
    SELECT array_agg(k.partition_id), array_agg(k.group_id) INTO v_ids, v_groups
    FROM fairlane.cursors k JOIN fairlane.partitions p ON p.id = k.partition_id
    WHERE p.queue_id = p_queue AND k.lease IS NULL AND k.ready_at > t
      AND (k.ready_at = fairlane.never() OR k.ready_at <= p.last_at + make_interval(secs => p_window)
           OR k.ready_at <= (SELECT s.created_at FROM fairlane.segments s
                             WHERE s.partition_id = p.id AND s.first_pos <= k.committed ORDER BY s.first_pos DESC LIMIT 1)
                            + make_interval(secs => p_delay));
    UPDATE fairlane.cursors k SET ready_at = t FROM unnest(v_ids, v_groups) u(id, group_id)
    WHERE k.partition_id = u.id AND k.group_id = u.group_id;
END $$;

-- Deletes all messages of a queue's partitions, and their ids. Returns their number. p_partition 0 means all partitions. The
-- caller has locked their segments, then the queue, and recounts its depth.
CREATE OR REPLACE FUNCTION fairlane.clear(p_queue bigint, p_partition bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_full bigint[];             -- with messages or their ids
    v_heads bigint[];
    v_due timestamptz[];
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
    SELECT array_agg(p.id), array_agg(p.head) INTO v_full, v_heads FROM fairlane.partitions p
    WHERE p.id = ANY (v_ids)
      AND (p.start < p.head
           OR EXISTS (SELECT 1 FROM fairlane.deleted_ids d WHERE d.partition_id = p.id));
    INSERT INTO fairlane.trims (partition_id, cleared)
    SELECT u.id, u.head FROM unnest(v_full, v_heads) u(id, head)
    ON CONFLICT (partition_id) DO UPDATE SET cleared = excluded.cleared;
    UPDATE fairlane.partitions p SET start = p.head WHERE p.id = ANY (v_ids) AND p.start < p.head;
    -- Unused partitions are removed later.
    SELECT array_agg(p.id), array_agg(p.last_at + interval '30 days') INTO v_ids, v_due FROM fairlane.partitions p
    WHERE p.id = ANY (v_ids);
    INSERT INTO fairlane.expiries (partition_id, queue_id, due_at)
    SELECT u.id, p_queue, u.due_at FROM unnest(v_ids, v_due) u(id, due_at)
    ON CONFLICT DO NOTHING;
    RETURN v_cleared;
END $$;
