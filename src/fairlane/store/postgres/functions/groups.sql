-- Creates cursors of a group for up to p_limit partitions, by name after p_after. Returns the last name, NULL if no more can be
-- missing. p_exact: uses the current heads for mode `new`, otherwise the position of the log at p_from.
CREATE OR REPLACE FUNCTION fairlane.seed(
    p_queue bigint, p_group bigint, p_mode text, p_from timestamptz, p_exact boolean, p_after text, p_limit int,
    p_now timestamptz
) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids bigint[];
    v_fresh bigint[];
    v_at bigint[] := '{}';
    v_ready timestamptz[];
    v_failing boolean[];
    v_last text;
BEGIN
    SELECT array_agg(x.id ORDER BY x.id), max(x.name COLLATE "C") INTO v_ids, v_last
    FROM (SELECT p.id, p.name FROM fairlane.partitions p
          WHERE p.queue_id = p_queue AND p.name > p_after ORDER BY p.name LIMIT p_limit) x;
    IF v_ids IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM 1 FROM fairlane.partitions p WHERE p.id = ANY (v_ids) ORDER BY p.id FOR NO KEY UPDATE;
    t := coalesce(p_now, clock_timestamp());
    FOR i IN 1 .. cardinality(v_ids) LOOP
        v_at := v_at || CASE WHEN p_mode = 'all' OR p_exact AND p_mode = 'new' THEN NULL
                             ELSE fairlane.position_at(v_ids[i], p_from) END;
    END LOOP;
    SELECT array_agg(p.id), array_agg(x.at), array_agg(CASE WHEN x.at < p.head THEN t - p.priority_lead END),
           array_agg(EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = p.id AND s.position >= x.at AND s.group_id = 0))
    INTO v_fresh, v_at, v_ready, v_failing
    FROM unnest(v_ids, v_at) i(id, at)
    -- One by one: a plan that was made with few partitions would scan all of them for each.
    CROSS JOIN LATERAL (SELECT y.* FROM fairlane.partitions y WHERE y.id = i.id LIMIT 1) p
    CROSS JOIN LATERAL (SELECT CASE WHEN p_mode = 'all' THEN p.start WHEN i.at IS NULL THEN p.head ELSE i.at END AS at) x
    LEFT JOIN LATERAL (SELECT y.group_id FROM fairlane.cursors y
                       WHERE y.partition_id = p.id AND y.group_id = p_group LIMIT 1) k ON true
    -- Under the locks of the partitions: a cursor is created only by a session that holds its partition, or has just created it.
    WHERE k.group_id IS NULL;
    INSERT INTO fairlane.cursors (partition_id, group_id, committed, ready_at, failing)
    SELECT c.id, p_group, c.at, c.ready_at, c.failing FROM unnest(v_fresh, v_at, v_ready, v_failing) c(id, at, ready_at, failing);
    PERFORM fairlane.skip_cancelled(v_ids, p_group, t);
    RETURN CASE WHEN cardinality(v_ids) = p_limit THEN v_last END;
END $$;

-- Creates up to p_limit missing cursors of a group. Returns true if more may be missing. The caller has locked the queue.
CREATE OR REPLACE FUNCTION fairlane.seed_group(p_group bigint, p_exact boolean, p_limit int, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    g fairlane.groups;
    v_after text;
BEGIN
    SELECT x.* INTO g FROM fairlane.groups x WHERE x.id = p_group AND x.seed_after IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_after := fairlane.seed(
        g.queue_id, p_group, g.mode, coalesce(g.from_at, g.created_at), p_exact, g.seed_after, p_limit, p_now);
    UPDATE fairlane.groups x SET seed_after = v_after WHERE x.id = p_group;
    RETURN v_after IS NOT NULL;
END $$;

-- Decides which groups of a queue count for its depth: those of consumers, without the unnamed group if messages become commands,
-- and all groups if that leaves none. The caller has locked the queue.
CREATE OR REPLACE FUNCTION fairlane.choose_counting(p_queue bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE fairlane.groups g SET counts = w.own OR NOT w.any_own
    FROM (SELECT x.id, x.counts, x.own, bool_or(x.own) OVER () AS any_own
          FROM (SELECT o.id, o.counts, NOT o.look AND NOT (o.name = '__QUEUE_MODE__' AND EXISTS (
                                 SELECT 1 FROM fairlane.groups c WHERE c.queue_id = p_queue AND c.name = '__COMMANDS__')) AS own
                FROM fairlane.groups o WHERE o.queue_id = p_queue) x) w
    WHERE g.id = w.id AND w.counts <> (w.own OR NOT w.any_own);
END $$;

-- Returns the group of this name, and creates it with its first p_limit cursors if it does not exist. A group that was only used
-- to inspect messages becomes a consumer's group. Returns no row if the queue is gone, or if no spec in force declares commands
-- for it.
CREATE OR REPLACE FUNCTION fairlane.subscribe(
    p_queue bigint, p_name text, p_mode text, p_from timestamptz, p_conflation boolean, p_look boolean, p_limit int, p_now timestamptz
) RETURNS TABLE (
    id bigint, queue_id bigint, name text, mode text, from_at timestamptz, conflation boolean, look boolean, created_at timestamptz,
    seeding boolean)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_max_size bigint;
    v_depth bigint;
    v_group bigint;
    v_look boolean;
BEGIN
    -- In a separate statement: the next one sees what others created before they released the queue.
    SELECT (q.options ->> 'max_size')::bigint INTO v_max_size FROM fairlane.queues q WHERE q.id = p_queue FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    t := coalesce(p_now, clock_timestamp());
    SELECT g.id, g.look INTO v_group, v_look FROM fairlane.groups g WHERE g.queue_id = p_queue AND g.name = p_name;
    IF v_group IS NULL OR v_look AND NOT p_look THEN
        IF v_group IS NOT NULL THEN
            UPDATE fairlane.groups g SET look = false WHERE g.id = v_group;
        ELSIF p_name = '__COMMANDS__' AND NOT EXISTS (
            SELECT 1 FROM fairlane.queues q JOIN fairlane.tenants n ON n.id = q.tenant_id
            JOIN fairlane.declared_queues d ON d.tenant = n.name AND d.name = q.name WHERE q.id = p_queue AND d.mapped) THEN
            RETURN;
        ELSE
            v_group := fairlane.new_id(nextval('fairlane.groups_id_seq'));
            INSERT INTO fairlane.groups (id, queue_id, name, mode, from_at, conflation, look, created_at, seed_after)
            OVERRIDING SYSTEM VALUE VALUES (v_group, p_queue, p_name, p_mode, p_from, p_conflation, p_look, t, '');
            PERFORM fairlane.seed_group(v_group, true, p_limit, p_now);
        END IF;
        PERFORM fairlane.choose_counting(p_queue);
        IF v_max_size > 0 THEN
            v_depth := fairlane.count_unfinished(p_queue);
            UPDATE fairlane.queues q SET depth = v_depth WHERE q.id = p_queue;
        END IF;
    END IF;
    RETURN QUERY
    SELECT g.id, g.queue_id, g.name, g.mode, g.from_at, g.conflation, g.look, g.created_at, g.seed_after IS NOT NULL
    FROM fairlane.groups g WHERE g.id = v_group;
END $$;

-- Seeks the cursors of a group to the beginning, the end, a time or a position, and ends their leases. Returns their number.
CREATE OR REPLACE FUNCTION fairlane.seek(
    p_queue bigint, p_group bigint, p_partition bigint, p_to text, p_at timestamptz, p_position bigint,
    p_now timestamptz
) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids bigint[];
    v_at bigint[] := '{}';
    v_ready timestamptz[];
    v_failing boolean[];
    v_moved bigint;
BEGIN
    SELECT array_agg(x.id) INTO v_ids
    FROM (SELECT p.id FROM fairlane.partitions p
          WHERE p.queue_id = p_queue AND (p_partition = 0 OR p.id = p_partition)
          ORDER BY p.id FOR NO KEY UPDATE) x;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    -- In a separate statement: pops and acks in flight have ended then, and later statements see their results.
    PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = ANY (v_ids) AND k.group_id = p_group
    ORDER BY k.partition_id FOR UPDATE;
    t := coalesce(p_now, clock_timestamp());
    IF p_to = 'time' THEN
        FOR i IN 1 .. cardinality(v_ids) LOOP
            v_at := v_at || fairlane.position_at(v_ids[i], p_at);
        END LOOP;
    ELSE
        v_at := array_fill(p_position, ARRAY[cardinality(v_ids)]);
    END IF;
    DELETE FROM fairlane.failures f WHERE f.partition_id = ANY (v_ids) AND f.group_id = p_group;
    DELETE FROM fairlane.skips s WHERE s.partition_id = ANY (v_ids) AND s.group_id = p_group;
    DELETE FROM fairlane.claims c WHERE c.partition_id = ANY (v_ids) AND c.group_id = p_group;
    SELECT array_agg(x.id), array_agg(x.at), array_agg(CASE WHEN x.at < x.head THEN t - x.priority_lead END),
           array_agg(EXISTS (SELECT 1 FROM fairlane.skips s WHERE s.partition_id = x.id AND s.position >= x.at AND s.group_id = 0))
    INTO v_ids, v_at, v_ready, v_failing
    FROM (SELECT p.id, p.head, p.priority_lead,
                 CASE p_to WHEN 'beginning' THEN p.start WHEN 'end' THEN p.head
                           ELSE greatest(p.start, least(p.head, i.at)) END AS at
          FROM unnest(v_ids, v_at) i(id, at) JOIN fairlane.partitions p ON p.id = i.id) x;
    UPDATE fairlane.cursors k
    SET committed = x.at, claimed = 0, lease = NULL, lease_end = x.at, last_lease = NULL, probe_until = 0, failing = x.failing,
        ready_at = x.ready_at
    FROM unnest(v_ids, v_at, v_ready, v_failing) x(id, at, ready_at, failing)
    WHERE k.partition_id = x.id AND k.group_id = p_group;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    PERFORM fairlane.skip_cancelled(v_ids, p_group, t);
    RETURN v_moved;
END $$;

-- Deletes all records of a group's lanes. Returns their number. The caller has locked the queue.
CREATE OR REPLACE FUNCTION fairlane.forget_lanes(p_queue bigint, p_group bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_gone bigint;
BEGIN
    SELECT array_agg(x.id) INTO v_ids
    FROM (SELECT p.id FROM fairlane.partitions p WHERE p.queue_id = p_queue
          ORDER BY p.id FOR NO KEY UPDATE) x;
    PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = ANY (v_ids) AND k.group_id = p_group
    ORDER BY k.partition_id FOR UPDATE;
    DELETE FROM fairlane.failures x WHERE x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.claims x WHERE x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.skips x WHERE x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.dead_letters x WHERE x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.results x WHERE x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.cancellations x WHERE x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    DELETE FROM fairlane.starts x WHERE x.group_id = p_group;
    DELETE FROM fairlane.cursors x WHERE x.partition_id = ANY (v_ids) AND x.group_id = p_group;
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    RETURN v_gone;
END $$;
