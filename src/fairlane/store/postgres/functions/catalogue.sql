-- The named queues of a tenant, with p_make made where they are missing. What somebody else deletes or makes meanwhile may be left out.
CREATE OR REPLACE FUNCTION fairlane.ensure(
    p_tenant text, p_names text[], p_namespaces text[], p_tasks text[], p_options text, p_make boolean, p_now timestamptz
) RETURNS TABLE (id bigint, tenant text, name text, namespace text, task text, options jsonb, created_at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    v_tenant int;
BEGIN
    SELECT t.id INTO v_tenant FROM fairlane.tenants t WHERE t.name = p_tenant;
    IF p_make THEN
        INSERT INTO fairlane.queues (tenant_id, name, namespace, task, options, created_at)
        SELECT v_tenant, w.name, w.namespace, w.task, p_options::jsonb, coalesce(p_now, clock_timestamp())
        FROM unnest(p_names, p_namespaces, p_tasks) w(name, namespace, task)
        LEFT JOIN LATERAL (SELECT q.id FROM fairlane.queues q WHERE q.tenant_id = v_tenant AND q.name = w.name LIMIT 1) x ON true
        WHERE x.id IS NULL AND v_tenant IS NOT NULL ORDER BY w.name  -- in one order, whoever else makes them
        ON CONFLICT (tenant_id, name) DO NOTHING;
    END IF;
    RETURN QUERY
    SELECT x.id, p_tenant, x.name, x.namespace, x.task, x.options, x.created_at
    FROM unnest(p_names) w(name)
    CROSS JOIN LATERAL (SELECT q.* FROM fairlane.queues q WHERE q.tenant_id = v_tenant AND q.name = w.name LIMIT 1) x;
END $$;

-- The named partitions of one shard, each with its queue; with p_make made where they are missing, each with a cursor for every group
-- of its queue. They are made under the queue's row lock, as is the birth of a group: otherwise a lane could be born without a
-- reader. Of a queue that is gone nothing is returned.
CREATE OR REPLACE FUNCTION fairlane.born(p_shard int, p_queues bigint[], p_names text[], p_make boolean, p_now timestamptz)
RETURNS TABLE (id bigint, queue_id bigint, name text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_missing bigint[];
    v_new bigint[];
    v_homes bigint[];
BEGIN
    IF p_make THEN
        SELECT array_agg(DISTINCT w.queue_id) INTO v_missing
        FROM unnest(p_queues, p_names) w(queue_id, name)
        LEFT JOIN LATERAL (SELECT p.id FROM fairlane.partitions p
                           WHERE p.shard = p_shard AND p.queue_id = w.queue_id AND p.name = w.name LIMIT 1) x ON true
        WHERE x.id IS NULL;
    END IF;
    IF v_missing IS NOT NULL THEN
        PERFORM 1 FROM fairlane.queues q WHERE q.id = ANY (v_missing) ORDER BY q.id FOR UPDATE;
        t := coalesce(p_now, clock_timestamp());
        WITH made AS (
            INSERT INTO fairlane.partitions AS p (shard, queue_id, name, created_at, last_at)
            SELECT DISTINCT p_shard, w.queue_id, w.name, t, t
            FROM unnest(p_queues, p_names) w(queue_id, name)
            CROSS JOIN LATERAL (SELECT q.id FROM fairlane.queues q WHERE q.id = w.queue_id LIMIT 1) home
            LEFT JOIN LATERAL (SELECT p.id FROM fairlane.partitions p
                               WHERE p.shard = p_shard AND p.queue_id = w.queue_id AND p.name = w.name LIMIT 1) x ON true
            WHERE x.id IS NULL
            RETURNING p.id, p.queue_id)
        SELECT array_agg(made.id), array_agg(made.queue_id) INTO v_new, v_homes FROM made;
        INSERT INTO fairlane.cursors (shard, partition_id, group_id, committed)
        SELECT p_shard, n.id, g.id, 0 FROM unnest(v_new, v_homes) n(id, queue_id) JOIN fairlane.groups g ON g.queue_id = n.queue_id;
    END IF;
    RETURN QUERY
    SELECT x.id, w.queue_id, w.name
    FROM unnest(p_queues, p_names) w(queue_id, name)
    CROSS JOIN LATERAL (SELECT p.id FROM fairlane.partitions p
                        WHERE p.shard = p_shard AND p.queue_id = w.queue_id AND p.name = w.name LIMIT 1) x;
END $$;

-- Lets the lanes of a partition count as if they had waited so much longer, also those that are ready now.
CREATE OR REPLACE FUNCTION fairlane.rank(p_shard int, p_partition bigint, p_boost interval, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    v_before interval;
BEGIN
    SELECT p.boost INTO v_before FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = p_partition FOR NO KEY UPDATE;
    IF v_before IS DISTINCT FROM p_boost AND v_before IS NOT NULL THEN
        UPDATE fairlane.partitions p SET boost = p_boost WHERE p.shard = p_shard AND p.id = p_partition;
        PERFORM 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = p_partition ORDER BY k.group_id FOR UPDATE;
        UPDATE fairlane.cursors k SET ready_at = k.ready_at + v_before - p_boost
        WHERE k.shard = p_shard AND k.partition_id = p_partition AND k.lease IS NULL
          AND k.ready_at <= least(coalesce(p_now, clock_timestamp()), coalesce(p_now, clock_timestamp()) - v_before + p_boost);
    END IF;
    RETURN v_before IS NOT NULL;
END $$;

-- Makes cursors of a group for up to p_limit partitions of one shard, by name after p_after; the last name, NULL if there was none.
-- p_exact: heads of this moment for mode `new`, otherwise where the log stood at p_from.
CREATE OR REPLACE FUNCTION fairlane.seed(
    p_shard int, p_queue bigint, p_group bigint, p_mode text, p_from timestamptz, p_exact boolean, p_after text, p_limit int,
    p_now timestamptz
) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids bigint[];
    v_at bigint[] := '{}';
    v_last text;
BEGIN
    SELECT array_agg(x.id ORDER BY x.id), max(x.name COLLATE "C") INTO v_ids, v_last
    FROM (SELECT p.id, p.name FROM fairlane.partitions p
          WHERE p.shard = p_shard AND p.queue_id = p_queue AND p.name > p_after ORDER BY p.name LIMIT p_limit) x;
    IF v_ids IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM fairlane.partitions p WHERE p.shard = p_shard AND p.id = ANY (v_ids) ORDER BY p.id FOR NO KEY UPDATE;
    t := coalesce(p_now, clock_timestamp());
    FOR i IN 1 .. cardinality(v_ids) LOOP
        v_at := v_at || CASE WHEN p_mode = 'all' OR p_exact AND p_mode = 'new' THEN NULL
                             ELSE fairlane.position_at(p_shard, v_ids[i], p_from) END;
    END LOOP;
    INSERT INTO fairlane.cursors (shard, partition_id, group_id, committed, ready_at, failing)
    SELECT p_shard, p.id, p_group, x.at, CASE WHEN x.at < p.head THEN t - p.boost END,
           EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.shard = p_shard AND s.partition_id = p.id AND s.position >= x.at
                   AND s.group_id = 0)
    FROM unnest(v_ids, v_at) i(id, at)
    JOIN fairlane.partitions p ON p.shard = p_shard AND p.id = i.id
    CROSS JOIN LATERAL (SELECT CASE WHEN p_mode = 'all' THEN p.start WHEN i.at IS NULL THEN p.head ELSE i.at END AS at) x
    -- Under the partitions' locks: whoever makes a cursor holds its partition, or has just made it.
    WHERE NOT EXISTS (SELECT 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = p.id AND k.group_id = p_group);
    RETURN v_last;
END $$;

-- Sends the cursors of a group to the beginning, the end, a time or a position and ends their leases; how many.
CREATE OR REPLACE FUNCTION fairlane.seek(
    p_shard int, p_queue bigint, p_group bigint, p_partition bigint, p_to text, p_at timestamptz, p_position bigint,
    p_now timestamptz
) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids bigint[];
    v_at bigint[] := '{}';
    v_moved bigint;
BEGIN
    SELECT array_agg(x.id) INTO v_ids
    FROM (SELECT p.id FROM fairlane.partitions p
          WHERE p.shard = p_shard AND p.queue_id = p_queue AND (p_partition = 0 OR p.id = p_partition)
          ORDER BY p.id FOR NO KEY UPDATE) x;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    -- In a statement of its own: pops and acks in flight are over then, and the statements behind it see all that they left.
    PERFORM 1 FROM fairlane.cursors k WHERE k.shard = p_shard AND k.partition_id = ANY (v_ids) AND k.group_id = p_group
    ORDER BY k.partition_id FOR UPDATE;
    t := coalesce(p_now, clock_timestamp());
    IF p_to = 'time' THEN
        FOR i IN 1 .. cardinality(v_ids) LOOP
            v_at := v_at || fairlane.position_at(p_shard, v_ids[i], p_at);
        END LOOP;
    ELSE
        v_at := array_fill(p_position, ARRAY[cardinality(v_ids)]);
    END IF;
    DELETE FROM fairlane.failures f WHERE f.shard = p_shard AND f.partition_id = ANY (v_ids) AND f.group_id = p_group;
    DELETE FROM fairlane.skips s WHERE s.shard = p_shard AND s.partition_id = ANY (v_ids) AND s.group_id = p_group;
    DELETE FROM fairlane.claims c WHERE c.shard = p_shard AND c.partition_id = ANY (v_ids) AND c.group_id = p_group;
    UPDATE fairlane.cursors k
    SET committed = x.at, claimed = 0, lease = NULL, lease_end = x.at, last_lease = NULL, probe_until = 0,
        failing = EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.shard = p_shard AND s.partition_id = x.id
                          AND s.position >= x.at AND s.group_id = 0),
        ready_at = CASE WHEN x.at < x.head THEN t - x.boost END
    FROM (SELECT p.id, p.head, p.boost,
                 CASE p_to WHEN 'beginning' THEN p.start WHEN 'end' THEN p.head
                           ELSE greatest(p.start, least(p.head, i.at)) END AS at
          FROM unnest(v_ids, v_at) i(id, at) JOIN fairlane.partitions p ON p.shard = p_shard AND p.id = i.id) x
    WHERE k.shard = p_shard AND k.partition_id = x.id AND k.group_id = p_group;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END $$;

-- Messages of a queue in one shard that some group that counts has not finished, all retained ones while it has no group; and those that
-- wait in open operations, whose places are taken.
CREATE OR REPLACE FUNCTION fairlane.unfinished(p_shard int, p_queue bigint) RETURNS bigint
LANGUAGE sql AS $$
    SELECT coalesce(sum(p.head - m.done - h.holes
                        + CASE WHEN m.shared THEN fairlane.in_flight(p_shard, p.id, m.done) ELSE 0 END), 0)::bigint
         + (SELECT coalesce(sum(l.messages), 0)::bigint FROM fairlane.operation_lanes l
            WHERE l.shard = p_shard AND l.queue_id = p_queue)
    FROM fairlane.partitions p
    CROSS JOIN LATERAL (SELECT coalesce(min(greatest(c.committed, c.claimed)), p.start) AS done, bool_or(c.claimed > 0) AS shared
                        FROM fairlane.counting c
                        WHERE c.shard = p_shard AND c.partition_id = p.id) m
    CROSS JOIN LATERAL (SELECT count(*) AS holes FROM fairlane.skips s
                        WHERE s.shard = p_shard AND s.partition_id = p.id AND s.position >= m.done AND s.group_id = 0) h
    WHERE p.shard = p_shard AND p.queue_id = p_queue;
$$;

-- The dead letters of a queue in one shard that match; NULL matches any.
CREATE OR REPLACE FUNCTION fairlane.dead_letters_where(
    p_shard int, p_queue bigint, p_group text, p_partition bigint, p_ids text[], p_failed_from timestamptz,
    p_failed_until timestamptz, p_replayed boolean, p_error text
) RETURNS TABLE (id text, shard int, partition_id bigint, group_id bigint, "position" bigint, queue text, partition_name text,
                 "group" text, message bytea, message_created_at timestamptz, error text, attempts int,
                 first_failed_at timestamptz, failed_at timestamptz, replayed_at timestamptz, replayed_as text,
                 history jsonb)
LANGUAGE sql STABLE AS $$
    SELECT concat_ws('-', d.shard, d.partition_id, d.group_id, d.position) COLLATE "C", d.shard, d.partition_id, d.group_id,
           d.position, q.name, p.name::text, g.name, d.message, d.message_created_at, d.error, d.attempts, d.first_failed_at,
           d.failed_at, d.replayed_at, d.replayed_as, d.history
    FROM fairlane.dead_letters d
    JOIN fairlane.queues q ON q.id = d.queue_id
    JOIN fairlane.groups g ON g.id = d.group_id
    JOIN fairlane.partitions p ON p.shard = d.shard AND p.id = d.partition_id
    WHERE d.shard = p_shard AND d.queue_id = p_queue
      AND (p_group IS NULL OR g.name = p_group)
      AND (p_partition IS NULL OR d.partition_id = p_partition)
      AND (p_ids IS NULL OR concat_ws('-', d.shard, d.partition_id, d.group_id, d.position) = ANY (p_ids))
      AND (p_failed_from IS NULL OR d.failed_at >= p_failed_from)
      AND (p_failed_until IS NULL OR d.failed_at < p_failed_until)
      AND (p_replayed IS NULL OR (d.replayed_at IS NOT NULL) = p_replayed)
      AND (p_error IS NULL OR strpos(d.error, p_error) > 0);
$$;
