-- Leases ready lanes of one group to claims, in order: claim i takes up to p_batch[i] messages from up to p_lanes[i] lanes under
-- the token p_tokens[i]. Returns one row per segment of each claimed lane, in the columns up to `body`, and then one summary row
-- in the others:
--   gone            the queue or the group does not exist
--   not_ready       lanes that had nothing to read yet
--   expired         messages that were too old
--   leases_lost     leases that had run out
--   dead_lettered   messages that were dead-lettered
--   popped_at       the time that the call used as now
--   next_at         when the next lane is due, if not all claims were satisfied and somebody waits
--   scan_from       the smallest ready_at that the next call needs to scan
-- Times and ends of segments are in PostgreSQL's binary format. The caller decodes them only if it needs them, which is rare.
--
-- A claim of 0 messages is never satisfied: such a call only expires messages, in lanes that were not popped for as long as the
-- queue lets a message wait.
--
-- Only pops keep a lane from being read. Other code that sets ready_at need not know of delays, windows and pauses, because a pop
-- postpones such a lane to the time when it may be read.
--
-- Never waits for a lock while it holds cursors: it leaves locked lanes ready for the next pop.
CREATE OR REPLACE FUNCTION fairlane.pop(
    p_queue bigint,
    p_group bigint,
    p_tokens uuid[],
    p_batch int[],
    p_lanes int[],
    p_auto_ack boolean,
    p_lease_seconds int,   -- 0: the queue's
    p_partition bigint,    -- 0: any
    p_from timestamptz,    -- start of the scan of ready lanes: index entries below are dead
    p_bytes_max bigint,
    p_forgiving boolean,   -- true to charge nothing for an expired lease
    p_waits boolean,       -- true if the caller wants `next_at`
    p_now timestamptz,
    p_unlimited boolean DEFAULT false  -- the caller has applied the limits of the queue
) RETURNS TABLE (claim int, partition_id bigint, name text, first bigint, upto bigint, attempts int, lease_ends_at bytea,
                 segment_first bigint, created_at bytea, checksum bigint, ends bytea, body bytea,
                 gone boolean, not_ready int, expired bigint, leases_lost bigint, dead_lettered bigint, popped_at bytea, next_at bytea,
                 scan_from timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    t_end timestamptz;
    t_next timestamptz;
    o jsonb;
    v_conflating boolean;
    v_limited boolean;
    v_delay interval; v_window interval; v_life interval;
    v_by_time boolean;
    v_plain boolean;
    v_paused boolean;
    v_lanes refcursor;
    c record;
    v_seen timestamptz;
    v_claim int := 1;
    v_batch int := p_batch[1]; v_left int := p_lanes[1];
    v_bytes bigint := p_bytes_max;
    v_want int := cardinality(p_lanes);
    v_look int;
    v_until timestamptz; v_ready_at timestamptz;
    r record;
    v_dropped bigint; v_gone bigint := 0;
    v_more boolean := false;
    v_park boolean;
    v_first bigint; v_upto bigint; v_stop bigint; v_probe bigint;
    v_failing boolean;
    v_attempts int; v_dead int;
    l_claim int[]; l_token uuid[]; l_partition bigint[]; l_name text[]; l_first bigint[]; l_upto bigint[];  -- lanes taken
    l_attempts int[]; l_probe bigint[]; l_failing boolean[]; l_dead int[]; l_dropped bigint[]; l_epoch bigint[];
    l_awake timestamptz[];               -- when they are ready again if they have more messages
    d_partition bigint[]; d_at timestamptz[]; d_first bigint[]; d_probe bigint[];  -- lanes to postpone
    d_failing boolean[]; d_park boolean[]; d_dead int[]; d_dropped bigint[]; d_epoch bigint[];
    d_empty boolean[];                   -- true for lanes that have nothing to read
    v_put_off int := 0;
    v_groups bigint[];
    v_paused_lanes bigint[];             -- lanes postponed because their partition is paused
    v_drained bigint[];                  -- lanes taken up to the head that this call read
    v_held bigint[];
    v_still boolean[];
    v_moved bigint[];
    v_before bigint;
    v_saved bigint := 0;
    v_changed bigint;
    v_lost bigint := 0; v_died bigint := 0;
BEGIN
    SELECT q.options, coalesce(q.paused_at, g.paused_at) IS NOT NULL, g.conflation INTO o, v_paused, v_conflating
    FROM fairlane.queues q JOIN fairlane.groups g ON g.queue_id = q.id
    WHERE q.id = p_queue AND g.id = p_group;
    IF o IS NULL OR v_paused THEN
        RETURN QUERY SELECT * FROM fairlane.pop_summary(o IS NULL, 0, 0, 0, 0, NULL, NULL, NULL);
        RETURN;
    END IF;
    IF fairlane.is_limited(o) AND NOT p_unlimited AND p_batch[1] > 0 THEN
        RETURN QUERY SELECT * FROM fairlane.pop_limited(p_queue, p_group, p_tokens, p_batch, p_lanes, p_auto_ack, p_lease_seconds,
            p_partition, p_from, p_bytes_max, p_forgiving, p_waits, p_now, o);
        RETURN;
    END IF;
    v_limited := (o ->> 'max_size')::bigint > 0;
    IF v_limited THEN
        PERFORM 1 FROM fairlane.queues q WHERE q.id = p_queue FOR UPDATE;
    END IF;
    IF o ->> 'ordering' = 'unordered' THEN
        RETURN QUERY SELECT * FROM fairlane.pop_unordered(p_queue, p_group, p_tokens, p_batch, p_lanes, p_auto_ack,
            p_lease_seconds, p_partition, p_from, p_bytes_max, p_forgiving, p_now, o);
        RETURN;
    END IF;
    t := coalesce(p_now, clock_timestamp());
    t_end := t + make_interval(secs => CASE WHEN p_lease_seconds > 0 THEN p_lease_seconds
                                            ELSE (o ->> 'lease_seconds')::int END);
    v_delay := make_interval(secs => nullif((o ->> 'delay_seconds')::int, 0));
    v_window := make_interval(secs => nullif((o ->> 'window_seconds')::int, 0));
    v_life := make_interval(secs => least(nullif((o ->> 'ttl_seconds')::int, 0), nullif((o ->> 'max_wait_seconds')::int, 0)));
    v_by_time := v_delay IS NOT NULL OR v_window IS NOT NULL OR v_life IS NOT NULL;
    IF 1 <> ANY (p_lanes) THEN
        v_want := (SELECT sum(x) FROM unnest(p_lanes) x);
    END IF;
    v_until := CASE WHEN p_batch[1] = 0 THEN t - v_life ELSE t END;
    -- Some lanes may have to be postponed. Lanes are locked while they are checked, so there must not be many.
    v_look := CASE WHEN coalesce(v_delay, v_window) IS NULL THEN v_want ELSE greatest(v_want, 8) END;
    -- The group is part of each row: with a known group, a plan for a small table would scan all its lanes.
    v_groups := array_fill(p_group, ARRAY[v_look]);

    -- The common case: each claim takes one lane, and no lane needs more than its cursor and its head. One statement fetches as
    -- much as possible, because each expression of a function costs every call some microseconds to prepare.
    v_plain := p_partition = 0 AND NOT v_conflating AND NOT v_by_time AND p_batch[1] > 0
               AND 1 = ALL (p_lanes) AND p_batch[1] = ALL (p_batch);
    IF v_plain THEN
        SELECT coalesce(bool_and(k.committed >= k.probe_until AND (k.lease IS NULL OR p_forgiving) AND NOT (k.failing OR k.parked)
                                 AND p.paused_at IS NULL AND p.head > k.committed
                                 AND least(p.head - k.committed, p_batch[1]) * p.message_bytes_max <= p_bytes_max), true),
               min(k.ready_at), count(*) + 1, array_positions(array_agg(0), 0), coalesce(array_agg(k.partition_id), '{}'),
               array_agg(p.name), array_agg(k.committed), array_agg(least(p.head, k.committed + p_batch[1])), array_agg(0),
               array_agg(k.probe_until), array_agg(false), array_agg(0), array_agg(0::bigint), array_agg(k.epoch),
               array_agg(k.partition_id) FILTER (WHERE p.head <= k.committed + p_batch[1]), array_agg(k.partition_id) FILTER (WHERE p_auto_ack),
               array_agg(t - p.priority_lead) FILTER (WHERE p_auto_ack)
        INTO v_plain, v_seen, v_claim, l_claim, l_partition, l_name, l_first, l_upto, l_attempts, l_probe, l_failing, l_dead, l_dropped,
             l_epoch, v_drained, v_moved, l_awake
        FROM (SELECT * FROM fairlane.cursors c
              WHERE c.group_id = p_group AND c.ready_at <= t AND c.ready_at >= p_from
              ORDER BY c.ready_at LIMIT v_want FOR UPDATE SKIP LOCKED) k
        CROSS JOIN LATERAL (
            SELECT x.* FROM fairlane.partitions x WHERE x.id = k.partition_id
            ORDER BY x.epoch DESC LIMIT 1) p;
    END IF;
    IF v_plain THEN
        l_token := p_tokens;
    ELSE
        SELECT NULL, 1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'
        INTO v_seen, v_claim, l_claim, l_token, l_partition, l_name, l_first, l_upto, l_attempts, l_probe, l_failing, l_dead, l_dropped, l_epoch,
             l_awake;
        SELECT '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'
        INTO d_partition, d_at, d_first, d_probe, d_failing, d_park, d_dead, d_dropped, d_epoch, d_empty, v_paused_lanes, v_drained, v_moved;
        IF p_partition = 0 THEN
            -- Lanes are chosen before their partitions are read, or a plan might read and sort them all.
            OPEN v_lanes FOR
            SELECT k.partition_id, k.committed, k.ready_at, k.lease, k.lease_end, k.probe_until, k.failing, k.parked, k.epoch,
                   p.paused_at, p.head, p.name, p.message_bytes_max, p.last_at, p.priority_lead
            FROM (SELECT * FROM fairlane.cursors c
                  WHERE c.group_id = p_group AND c.ready_at <= v_until AND c.ready_at >= p_from
                  ORDER BY c.ready_at LIMIT v_look FOR UPDATE SKIP LOCKED) k
            CROSS JOIN LATERAL (
                SELECT x.* FROM fairlane.partitions x WHERE x.id = k.partition_id
                ORDER BY x.epoch DESC LIMIT 1) p
            ORDER BY k.ready_at, k.partition_id;
        ELSE
            OPEN v_lanes FOR
            SELECT k.partition_id, k.committed, k.ready_at, k.lease, k.lease_end, k.probe_until, k.failing, k.parked, k.epoch,
                   p.paused_at, p.head, p.name, p.message_bytes_max, p.last_at, p.priority_lead
            FROM (SELECT * FROM fairlane.cursors c
                  WHERE c.partition_id = p_partition AND c.group_id = p_group
                  ORDER BY c.epoch DESC LIMIT 1 FOR UPDATE SKIP LOCKED) k
            CROSS JOIN LATERAL (
                SELECT x.* FROM fairlane.partitions x WHERE x.id = k.partition_id
                ORDER BY x.epoch DESC LIMIT 1) p
            WHERE k.ready_at <= t;
        END IF;
        LOOP
            FETCH v_lanes INTO c;
            EXIT WHEN NOT FOUND OR v_claim > cardinality(p_tokens);
            v_seen := coalesce(v_seen, c.ready_at);
            v_first := c.committed;
            v_probe := c.probe_until;
            v_failing := c.failing;
            v_attempts := 0;
            v_dead := 0;
            v_dropped := 0;
            v_ready_at := NULL;
            v_park := c.parked;
            IF c.lease IS NOT NULL AND NOT p_forgiving THEN
                -- The lease expired: charge its first message, and deliver the batch one by one from now on.
                v_probe := greatest(v_probe, c.lease_end);
                v_failing := true;
                v_lost := v_lost + 1;
                INSERT INTO fairlane.failures AS f
                       (partition_id, group_id, position, attempts, error, first_failed_at, failed_at, retry_limit)
                VALUES (c.partition_id, p_group, v_first, 1, 'Partition lease expired', t, t,
                        fairlane.own_retry_limit(c.partition_id, v_first))
                ON CONFLICT (partition_id, group_id, position) DO UPDATE
                SET attempts = f.attempts + 1, error = excluded.error, traceback = NULL, failed_at = excluded.failed_at,
                    history = fairlane.add_to_history(f.history, f.error, f.traceback, f.failed_at);
            END IF;
            IF v_conflating AND v_batch > 0 AND v_first < c.head - 1 AND NOT c.parked AND c.paused_at IS NULL THEN
                -- Only the newest deliverable message counts.
                v_stop := CASE WHEN c.last_at + v_delay > t
                               THEN fairlane.position_at(c.partition_id, t - v_delay + interval '1 microsecond')
                               ELSE c.head END;
                v_first := fairlane.newest_deliverable(c.partition_id, p_group, v_first, v_stop, v_failing);
            END IF;
            v_stop := c.head;
            IF v_life IS NOT NULL AND v_first < c.head THEN
                SELECT * INTO r FROM fairlane.expire(p_queue, c.partition_id, p_group, v_first, o, t);
                v_first := r.upto;
                v_dead := r.dead;
                v_died := v_died + v_dead;
                v_dropped := r.dropped;
                v_gone := v_gone + v_dead + v_dropped;
                v_more := v_more OR r.more;
                v_ready_at := CASE WHEN r.more THEN t END;
            END IF;
            IF v_failing AND v_ready_at IS NULL THEN
                SELECT * INTO r FROM fairlane.skip_failures(p_queue, c.partition_id, p_group, c.committed, v_first, c.head, o, t);
                v_first := r.first;
                v_attempts := r.attempts;
                v_dead := v_dead + r.dead;
                v_died := v_died + r.dead;
                v_ready_at := CASE WHEN r.stuck THEN fairlane.never() END;
                v_park := v_park OR r.stuck AND o ->> 'on_exhausted' = 'park';
                v_failing := r.failing;
                v_stop := r.stop;
            END IF;
            IF p_auto_ack OR v_first > c.committed THEN
                v_moved := v_moved || c.partition_id;
            END IF;
            IF c.head <= v_first THEN
                v_ready_at := t;
                v_probe := 0;
                v_failing := true;  -- it may still have obstacles ahead
            ELSIF v_by_time OR v_park OR v_ready_at IS NOT NULL OR c.paused_at IS NOT NULL THEN
                IF v_park OR c.paused_at IS NOT NULL THEN
                    v_ready_at := fairlane.never();
                END IF;
                v_paused_lanes := CASE WHEN c.paused_at IS NULL THEN v_paused_lanes ELSE v_paused_lanes || c.partition_id END;
                IF c.last_at + v_window > t THEN
                    v_ready_at := greatest(v_ready_at, c.last_at + v_window);
                END IF;
                IF c.last_at + v_delay > t THEN
                    v_stop := least(v_stop, fairlane.position_at(c.partition_id, t - v_delay + interval '1 microsecond'));
                    IF v_stop <= v_first THEN
                        v_ready_at := greatest(v_ready_at, fairlane.due_at(c.partition_id, v_first, v_delay));
                    END IF;
                END IF;
                v_ready_at := CASE WHEN v_batch = 0 THEN coalesce(v_ready_at, t) ELSE v_ready_at END;
            END IF;
            IF v_ready_at IS NOT NULL THEN
                d_partition := d_partition || c.partition_id;
                d_empty := d_empty || (c.head <= v_first);
                d_at := d_at || v_ready_at;
                d_first := d_first || v_first;
                d_probe := d_probe || v_probe;
                d_park := d_park || v_park;
                d_failing := d_failing || v_failing;
                d_dead := d_dead || v_dead; d_dropped := d_dropped || v_dropped; d_epoch := d_epoch || c.epoch;
                v_put_off := v_put_off + (c.head > v_first)::int;
                CONTINUE;
            END IF;
            v_upto := CASE WHEN v_conflating OR v_first < v_probe THEN v_first + 1 ELSE least(v_stop, v_first + v_batch) END;
            IF (v_upto - v_first) * c.message_bytes_max > v_bytes THEN
                v_upto := fairlane.batch_end(c.partition_id, v_first, v_upto, v_bytes);
            END IF;
            IF v_upto >= c.head THEN
                v_drained := v_drained || c.partition_id;
            END IF;
            l_claim := l_claim || v_claim;
            l_token := l_token || p_tokens[v_claim];
            l_partition := l_partition || c.partition_id;
            l_name := l_name || c.name;
            l_first := l_first || v_first;
            l_upto := l_upto || v_upto;
            l_attempts := l_attempts || v_attempts;
            l_probe := l_probe || v_probe;
            l_failing := l_failing || v_failing;
            l_dead := l_dead || v_dead; l_dropped := l_dropped || v_dropped; l_epoch := l_epoch || c.epoch;
            l_awake := l_awake || (t - c.priority_lead);
            v_batch := v_batch - (v_upto - v_first)::int;
            v_bytes := v_bytes - (v_upto - v_first) * c.message_bytes_max;
            v_left := v_left - 1;
            IF v_batch <= 0 OR v_left <= 0 OR v_bytes <= 0 THEN
                v_claim := v_claim + 1;
                v_batch := p_batch[v_claim];
                v_left := p_lanes[v_claim];
                v_bytes := p_bytes_max;
            END IF;
        END LOOP;
        CLOSE v_lanes;
    END IF;

    IF v_moved <> '{}' THEN
        IF v_limited THEN
            v_before := fairlane.count_finished(v_moved);
        ELSIF EXISTS (SELECT 1 FROM fairlane.queues q WHERE q.id = p_queue AND (q.options ->> 'max_size')::bigint > 0) THEN
            RAISE EXCEPTION 'queue % got a max_size meanwhile', p_queue USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;

    IF true = ANY (d_empty) OR (p_auto_ack AND v_drained <> '{}') THEN
        -- A lane may be declared empty only under the lock of its partition. Others stay ready and are checked again. A lane that
        -- had more messages still has them. Several groups may hold the lock in shared mode against pushes. Each takes it once
        -- per push, when it has read everything, so they cannot starve a push.
        SELECT coalesce(array_agg(x.id), '{}') INTO v_held
        FROM (SELECT id FROM unnest(CASE WHEN p_auto_ack THEN v_drained || d_partition ELSE d_partition END) id ORDER BY id) i
        CROSS JOIN LATERAL (
            SELECT p.id FROM fairlane.partitions p WHERE p.id = i.id ORDER BY p.epoch DESC LIMIT 1
            FOR SHARE SKIP LOCKED) x;
    END IF;
    -- Removing a delay, a window or a pause wakes the lanes under the locks of their cursors. That may have happened after the
    -- options were read here, and before the cursors were locked.
    IF v_put_off > 0 THEN
        IF o IS DISTINCT FROM (SELECT q.options FROM fairlane.queues q WHERE q.id = p_queue)
           OR EXISTS (SELECT 1 FROM fairlane.partitions x WHERE x.id = ANY (v_paused_lanes) AND x.paused_at IS NULL) THEN
            RAISE EXCEPTION 'lanes are put off for what does not hold any more' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF d_partition <> '{}' THEN
        IF true = ANY (d_failing) THEN
            d_failing := fairlane.still_failing(p_group, d_partition, d_first, d_failing);
        END IF;
        UPDATE fairlane.cursors k
        SET committed = a.first, lease = NULL, ready_at = a.ready_at, probe_until = a.probe, failing = a.failing, dead = k.dead + a.dead,
            expired = k.expired + a.dropped, parked = a.park, epoch = k.epoch + 1
        FROM (SELECT d.*, CASE WHEN d.empty AND d.id = ANY (v_held) AND d.first >= x.head THEN NULL ELSE d.at END AS ready_at
              FROM unnest(v_groups, d_partition, d_epoch, d_empty, d_at, d_first, d_probe, d_failing, d_park, d_dead, d_dropped)
                   d(grp, id, epoch, empty, at, first, probe, failing, park, dead, dropped)
              CROSS JOIN LATERAL (SELECT p.head FROM fairlane.partitions p WHERE p.id = d.id
                                  ORDER BY p.epoch DESC LIMIT 1) x) a
        WHERE k.partition_id = a.id AND k.group_id = a.grp AND k.epoch = a.epoch;
        GET DIAGNOSTICS v_changed = ROW_COUNT;
        v_saved := v_saved + v_changed;
    END IF;
    IF l_partition <> '{}' AND NOT p_auto_ack THEN
        UPDATE fairlane.cursors k
        SET committed = a.first, lease = a.token, lease_start = a.first, lease_end = a.upto, leased_at = t, probe_until = a.probe,
            failing = a.failing, dead = k.dead + a.dead, expired = k.expired + a.dropped, ready_at = t_end, epoch = k.epoch + 1
        FROM unnest(v_groups, l_partition, l_epoch, l_token, l_first, l_upto, l_probe,
                    l_failing, l_dead, l_dropped) a(grp, id, epoch, token, first, upto, probe, failing, dead, dropped)
        WHERE k.partition_id = a.id AND k.group_id = a.grp AND k.epoch = a.epoch;
        GET DIAGNOSTICS v_changed = ROW_COUNT;
        v_saved := v_saved + v_changed;
    ELSIF l_partition <> '{}' THEN
        v_still := CASE WHEN true = ANY (l_failing) THEN fairlane.still_failing(p_group, l_partition, l_upto, l_failing) ELSE l_failing END;
        UPDATE fairlane.cursors k
        SET committed = a.upto, lease = NULL, leased_at = t, dead = k.dead + a.dead, expired = k.expired + a.dropped, probe_until = a.probe,
            epoch = k.epoch + 1, failing = a.failing, ready_at = CASE WHEN a.empty THEN NULL ELSE a.awake END
        FROM (SELECT l.*, l.id = ANY (v_held) AND x.head <= l.upto AS empty
              FROM unnest(v_groups, l_partition, l_epoch, l_upto, l_probe, v_still, l_dead,
                          l_dropped, l_awake) l(grp, id, epoch, upto, probe, failing, dead, dropped, awake)
              CROSS JOIN LATERAL (SELECT p.head FROM fairlane.partitions p WHERE p.id = l.id
                                  ORDER BY p.epoch DESC LIMIT 1) x) a
        WHERE k.partition_id = a.id AND k.group_id = a.grp AND k.epoch = a.epoch;
        GET DIAGNOSTICS v_changed = ROW_COUNT;
        v_saved := v_saved + v_changed;
        IF true = ANY (l_failing) THEN
            DELETE FROM fairlane.failures f
            USING unnest(l_partition, l_upto, l_failing) l(id, upto, failing)
            WHERE l.failing AND f.partition_id = l.id AND f.group_id = p_group AND f.position < l.upto;
        END IF;
    END IF;
    IF v_saved <> coalesce(cardinality(d_partition), 0) + cardinality(l_partition) THEN
        RAISE EXCEPTION 'a lane changed while it was held' USING ERRCODE = 'serialization_failure';
    END IF;
    IF v_limited AND v_moved <> '{}' THEN
        v_before := fairlane.count_finished(v_moved) - v_before;
        UPDATE fairlane.queues q SET depth = q.depth - v_before WHERE q.id = p_queue;
    END IF;

    RETURN QUERY
    SELECT l.claim, l.id, l.name, l.first, l.upto, l.attempts, timestamptz_send(t_end), s.first_pos,
           timestamptz_send(s.created_at), s.checksum, array_send(s.ends), s.body,
           NULL::boolean, NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::timestamptz
    FROM unnest(l_claim, l_partition, l_name, l_first, l_upto, l_attempts) l(claim, id, name, first, upto, attempts)
    CROSS JOIN LATERAL (
        SELECT x.first_pos, x.created_at, x.checksum, x.ends, x.body FROM fairlane.segments x
        WHERE x.partition_id = l.id AND x.first_pos < l.upto
          AND x.first_pos >= (SELECT max(f.first_pos) FROM fairlane.segments f
                              WHERE f.partition_id = l.id AND f.first_pos <= l.first)
        ORDER BY x.first_pos  -- here the index gives the order; outside, all bodies would be sorted
    ) s;

    IF p_waits AND v_claim <= cardinality(p_tokens) THEN
        SELECT k.ready_at INTO t_next FROM fairlane.cursors k
        WHERE k.group_id = p_group AND k.ready_at > t AND k.ready_at < fairlane.never()
        ORDER BY k.ready_at LIMIT 1;
        IF v_more OR v_put_off >= v_look THEN
            t_next := t;
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM fairlane.pop_summary(false, coalesce(cardinality(d_partition), 0), v_gone, v_lost, v_died, t, t_next,
                                                    coalesce(v_seen, t));
END $$;
