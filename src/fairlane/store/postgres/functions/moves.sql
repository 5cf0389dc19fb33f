-- Moves of a queue to another cell. The docstring of `store/cells/move.py` has the steps and the invariant.

-- Makes p_term the mover of a queue in this cell, and waits for a switch of an earlier mover. True if the queue is here.
CREATE OR REPLACE FUNCTION fairlane.take_move(p_queue bigint, p_term bigint) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '30s' AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO fairlane.moving AS m (queue_id, term) VALUES (p_queue, p_term)
    ON CONFLICT (queue_id) DO UPDATE SET term = greatest(m.term, excluded.term);
    PERFORM fairlane.hold_move(p_queue, p_term);
    RETURN EXISTS (SELECT FROM fairlane.queues q WHERE q.id = p_queue);
END $$;

-- Raises unless p_term is the mover of the queue. No other mover takes over before the end of the transaction.
CREATE OR REPLACE FUNCTION fairlane.hold_move(p_queue bigint, p_term bigint) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '30s' AS $$
BEGIN
    PERFORM FROM fairlane.moving m WHERE m.queue_id = p_queue AND m.term = p_term FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process took over the move' USING ERRCODE = 'FL002';
    END IF;
END $$;

-- Locks everything of a queue that a broker could change, in the order of all locks. Effects have no lock of their own.
CREATE OR REPLACE FUNCTION fairlane.lock_to_move(p_queue bigint) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    v_ids bigint[];
BEGIN
    PERFORM 1 FROM fairlane.scheduled_segments b
    WHERE b.partition_id IN (SELECT p.id FROM fairlane.partitions p WHERE p.queue_id = p_queue) ORDER BY b.id FOR UPDATE;
    PERFORM 1 FROM fairlane.queues q WHERE q.id = p_queue FOR UPDATE;
    PERFORM 1 FROM fairlane.groups g WHERE g.queue_id = p_queue ORDER BY g.id FOR UPDATE;
    v_ids := ARRAY(SELECT x.id FROM (SELECT p.id FROM fairlane.partitions p WHERE p.queue_id = p_queue ORDER BY p.id FOR UPDATE) x);
    -- Partitions that were added while this waited for a lock.
    PERFORM 1 FROM fairlane.scheduled_segments b WHERE b.partition_id = ANY (v_ids) ORDER BY b.id FOR UPDATE;
    PERFORM 1 FROM fairlane.cursors k WHERE k.partition_id = ANY (v_ids) ORDER BY k.partition_id, k.group_id FOR UPDATE;
    PERFORM 1 FROM fairlane.operation_backlogs l WHERE l.partition_id = ANY (v_ids) ORDER BY l.partition_id, l.group_id FOR UPDATE;
    PERFORM 1 FROM fairlane.dead_letters d WHERE d.queue_id = p_queue AND d.forward_at IS NOT NULL
    ORDER BY d.partition_id, d.group_id, d.position FOR UPDATE;
    PERFORM 1 FROM fairlane.fan_in_parts f WHERE f.partition_id = ANY (v_ids) AND f.status IS NULL FOR UPDATE;
    LOCK TABLE fairlane.effects IN SHARE ROW EXCLUSIVE MODE;
END $$;

-- Removes a queue that is complete in another cell, and that the caller has locked. `purge` removes its other rows later. They
-- cannot be reached without the queue.
CREATE OR REPLACE FUNCTION fairlane.depart(p_queue bigint, p_cell int) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := clock_timestamp();
    v_tenant text;
    v_name text;
    v_ids bigint[] := ARRAY(SELECT p.id FROM fairlane.partitions p WHERE p.queue_id = p_queue);
BEGIN
    SELECT n.name, q.name INTO v_tenant, v_name FROM fairlane.queues q JOIN fairlane.tenants n ON n.id = q.tenant_id WHERE q.id = p_queue;
    INSERT INTO fairlane.placed (tenant, queue, cell) SELECT v_tenant, v_name, p_cell WHERE v_name IS NOT NULL
    ON CONFLICT (tenant, queue) DO UPDATE SET cell = excluded.cell;
    DELETE FROM fairlane.fan_ins f USING fairlane.fan_in_parts x
    WHERE x.queue_id = p_queue AND f.tenant = x.tenant AND f.id = x.fan_in AND f.ended_at IS NULL;
    DELETE FROM fairlane.fan_in_parts x WHERE x.queue_id = p_queue
      AND NOT EXISTS (SELECT FROM fairlane.fan_ins f WHERE f.tenant = x.tenant AND f.id = x.fan_in);
    PERFORM fairlane.clear_scheduled(v_ids);
    DELETE FROM fairlane.cursors x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.claims x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.failures x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.trims x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.expiries x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.effects x WHERE x.partition_id = ANY (v_ids);
    DELETE FROM fairlane.retention_rules x WHERE x.queue_id = p_queue;
    PERFORM fairlane.forget_copy(p_queue);
    IF EXISTS (SELECT FROM fairlane.identity i WHERE i.cell <> 0) THEN  -- the home has the declarations of all queues
        DELETE FROM fairlane.declared_queues d USING fairlane.queues q, fairlane.tenants n
        WHERE q.id = p_queue AND n.id = q.tenant_id AND d.tenant = n.name AND d.name = q.name;
    END IF;
    DELETE FROM fairlane.queues q WHERE q.id = p_queue;
    INSERT INTO fairlane.purges VALUES (p_queue, t) ON CONFLICT DO NOTHING;
END $$;

-- Removes the rows of a queue that `purge` leaves.
CREATE OR REPLACE FUNCTION fairlane.forget_copy(p_queue bigint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM fairlane.operations o USING fairlane.partitions p WHERE p.queue_id = p_queue AND o.partition_id = p.id;
    DELETE FROM fairlane.operation_backlogs l USING fairlane.partitions p WHERE p.queue_id = p_queue AND l.partition_id = p.id;
    DELETE FROM fairlane.effects e USING fairlane.partitions p WHERE p.queue_id = p_queue AND e.partition_id = p.id;
    DELETE FROM fairlane.starts s USING fairlane.groups g WHERE g.queue_id = p_queue AND s.group_id = g.id;
    DELETE FROM fairlane.groups g WHERE g.queue_id = p_queue;
    DELETE FROM fairlane.retention_minutes x WHERE x.queue_id = p_queue;
    DELETE FROM fairlane.retention_hours x WHERE x.queue_id = p_queue;
    DELETE FROM fairlane.arriving x WHERE x.queue_id = p_queue;
END $$;

-- Other queues that share an open fan-in with this one.
CREATE OR REPLACE FUNCTION fairlane.fan_in_partners(p_queue bigint) RETURNS text[] LANGUAGE sql STABLE AS $$
    SELECT array_agg(DISTINCT o.name ORDER BY o.name)
    FROM fairlane.queues q JOIN fairlane.tenants n ON n.id = q.tenant_id
    JOIN fairlane.fan_ins f ON f.tenant = n.name AND f.ended_at IS NULL
    JOIN fairlane.fan_in_parts x ON x.tenant = f.tenant AND x.fan_in = f.id
    CROSS JOIN LATERAL (SELECT f.queue UNION ALL SELECT y.queue FROM fairlane.fan_in_parts y WHERE y.tenant = f.tenant AND y.fan_in = f.id) o(name)
    WHERE q.id = p_queue AND o.name <> q.name AND (f.queue = q.name OR x.queue_id = p_queue);
$$;
