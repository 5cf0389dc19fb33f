-- Leases ready lanes of several groups at once, one lane per claim. It serves lanes that need no more than their cursor and their
-- head; everything else needs `pop`. Group i has p_claims[i] claims of up to p_batch[i] messages. p_tokens has the tokens of all
-- claims, group by group. A group occurs once.
--
-- The caller has the bytes of p_cached[i] from position p_cached_from[i] to p_cached_upto[i] - 1: segments there are returned with
-- NULL as ends and body. The caller compares their time and checksum with its copy.
--
-- Returns one row per segment of each claimed lane: the n-th claim of its group gets the n-th lane. Then one row per group with
-- `claim` 0:
--   plain       false if the group needs `pop`, and nothing of it was claimed; `pop` also finds out if it was deleted
--   popped_at   the time that the call used as now
--   next_at     when the next lane is due, if not all claims were satisfied and p_waits[i]
--   scan_from   the smallest ready_at that the next call needs to scan
--
-- Many groups that read the same messages share the statements, the commit and the locks of the partitions that they drain. Never
-- waits for a lock: it leaves locked lanes ready for the next pop.
CREATE OR REPLACE FUNCTION fairlane.pop_groups(
    p_queues bigint[],
    p_groups bigint[],
    p_claims int[],
    p_batch int[],
    p_auto_ack boolean[],
    p_lease_seconds int[],  -- 0: the queue's
    p_from timestamptz[],   -- start of the scan of ready lanes: index entries below are dead
    p_bytes_max bigint[],
    p_waits boolean[],      -- true if the caller wants `next_at`
    p_tokens uuid[],
    p_cached bigint[],
    p_cached_from bigint[],
    p_cached_upto bigint[],
    p_now timestamptz
) RETURNS TABLE (grp int, claim int, partition_id bigint, name text, first bigint, upto bigint, lease_ends_at bytea,
                 segment_first bigint, created_at bytea, checksum bigint, ends bytea, body bytea,
                 plain boolean, popped_at bytea, next_at bytea, scan_from timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    g_plain boolean[]; g_ends timestamptz[];
    g_tokens int[];     -- tokens before those of the group
    l_group int[]; l_partition bigint[]; l_name text[]; l_first bigint[]; l_upto bigint[]; l_epoch bigint[];  -- lanes taken
    l_due timestamptz[]; l_drained boolean[]; l_plain boolean[]; l_claim int[];
    l_ready_at timestamptz[];  -- when lanes can be read next that are finished at delivery
    v_held bigint[];
    v_changed bigint;
BEGIN
    SELECT array_agg(coalesce(o.id IS NOT NULL AND coalesce(q.paused_at, o.paused_at) IS NULL AND NOT o.conflation
                              AND q.options ->> 'ordering' <> 'unordered' AND NOT fairlane.is_limited(q.options)
                              AND (q.options ->> 'max_size')::bigint = 0 AND (q.options ->> 'delay_seconds')::int = 0
                              AND (q.options ->> 'window_seconds')::int = 0 AND (q.options ->> 'ttl_seconds')::int = 0
                              AND (q.options ->> 'max_wait_seconds')::int = 0, false) ORDER BY g.i),
           array_agg(t + make_interval(secs => CASE WHEN g.seconds > 0 THEN g.seconds
                                                    ELSE (q.options ->> 'lease_seconds')::int END) ORDER BY g.i),
           array_agg(g.tokens::int ORDER BY g.i)
    INTO g_plain, g_ends, g_tokens
    FROM (SELECT u.*, sum(u.claims) OVER (ORDER BY u.i) - u.claims AS tokens
          FROM unnest(p_queues, p_groups, p_claims, p_lease_seconds) WITH ORDINALITY u(queue, grp, claims, seconds, i)) g
    LEFT JOIN fairlane.queues q ON q.id = g.queue
    LEFT JOIN fairlane.groups o ON o.id = g.grp AND o.queue_id = g.queue;

    SELECT array_agg(g.i::int), array_agg(k.partition_id), array_agg(p.name), array_agg(k.committed),
           array_agg(least(p.head, k.committed + g.batch)), array_agg(k.epoch), array_agg(k.ready_at),
           array_agg(p.head <= k.committed + g.batch),
           array_agg(k.committed >= k.probe_until AND k.lease IS NULL AND NOT (k.failing OR k.parked) AND p.paused_at IS NULL
                     AND p.head > k.committed AND least(p.head - k.committed, g.batch) * p.message_bytes_max <= g.bytes_max)
    INTO l_group, l_partition, l_name, l_first, l_upto, l_epoch, l_due, l_drained, l_plain
    FROM unnest(p_groups, p_claims, p_batch, p_from, p_bytes_max, g_plain) WITH ORDINALITY g(id, claims, batch, since, bytes_max, plain, i)
    CROSS JOIN LATERAL (
        SELECT c.* FROM fairlane.cursors c
        WHERE c.group_id = g.id AND c.ready_at <= t AND c.ready_at >= g.since
        ORDER BY c.ready_at LIMIT g.claims FOR UPDATE SKIP LOCKED) k
    CROSS JOIN LATERAL (
        SELECT x.* FROM fairlane.partitions x WHERE x.id = k.partition_id
        ORDER BY x.epoch DESC LIMIT 1) p
    WHERE g.plain;
    IF false = ANY (l_plain) THEN
        SELECT array_agg(u.plain AND NOT u.i = ANY (SELECT l.grp FROM unnest(l_group, l_plain) l(grp, plain) WHERE NOT l.plain) ORDER BY u.i)
        INTO g_plain FROM unnest(g_plain) WITH ORDINALITY u(plain, i);
        SELECT array_agg(l.grp), array_agg(l.id), array_agg(l.name), array_agg(l.first), array_agg(l.upto), array_agg(l.epoch),
               array_agg(l.ready_at), array_agg(l.drained)
        INTO l_group, l_partition, l_name, l_first, l_upto, l_epoch, l_due, l_drained
        FROM unnest(l_group, l_partition, l_name, l_first, l_upto, l_epoch, l_due, l_drained)
             l(grp, id, name, first, upto, epoch, ready_at, drained)
        WHERE g_plain[l.grp];
    END IF;

    IF l_group IS NOT NULL THEN
        SELECT array_agg(n.n::int ORDER BY n.o) INTO l_claim
        FROM (SELECT l.o, row_number() OVER (PARTITION BY l.grp ORDER BY l.o) AS n FROM unnest(l_group) WITH ORDINALITY l(grp, o)) n;
        IF true = ANY (p_auto_ack) THEN
            IF EXISTS (SELECT 1 FROM unnest(p_queues, g_plain) g(id, plain) JOIN fairlane.queues q ON q.id = g.id
                       WHERE g.plain AND (q.options ->> 'max_size')::bigint > 0) THEN
                RAISE EXCEPTION 'a queue got a max_size meanwhile' USING ERRCODE = 'serialization_failure';
            END IF;
            -- A lane may be declared empty only under the lock of its partition. Others stay ready and are checked again.
            SELECT coalesce(array_agg(x.id), '{}') INTO v_held
            FROM (SELECT l.id FROM unnest(l_partition, l_drained, l_group) l(id, drained, grp)
                  WHERE l.drained AND p_auto_ack[l.grp] GROUP BY l.id ORDER BY l.id) i
            CROSS JOIN LATERAL (
                SELECT p.id FROM fairlane.partitions p WHERE p.id = i.id ORDER BY p.epoch DESC LIMIT 1
                FOR SHARE SKIP LOCKED) x;
            SELECT array_agg(CASE WHEN l.drained AND l.id = ANY (v_held) AND x.head <= l.upto THEN NULL ELSE t - x.priority_lead END
                             ORDER BY l.o)
            INTO l_ready_at
            FROM unnest(l_partition, l_upto, l_drained) WITH ORDINALITY l(id, upto, drained, o)
            CROSS JOIN LATERAL (SELECT p.head, p.priority_lead FROM fairlane.partitions p WHERE p.id = l.id
                                ORDER BY p.epoch DESC LIMIT 1) x;
        END IF;
        UPDATE fairlane.cursors k
        SET committed = CASE WHEN a.auto_ack THEN a.upto ELSE a.first END, lease = a.token,
            lease_start = CASE WHEN a.auto_ack THEN k.lease_start ELSE a.first END,
            lease_end = CASE WHEN a.auto_ack THEN k.lease_end ELSE a.upto END,
            leased_at = t, ready_at = a.ready_at, epoch = k.epoch + 1
        FROM (SELECT p_groups[l.grp] AS grp, l.id, l.epoch, l.first, l.upto, p_auto_ack[l.grp] AS auto_ack,
                     CASE WHEN NOT p_auto_ack[l.grp] THEN p_tokens[g_tokens[l.grp] + l.claim] END AS token,
                     CASE WHEN p_auto_ack[l.grp] THEN l.ready_at ELSE g_ends[l.grp] END AS ready_at
              FROM unnest(l_group, l_claim, l_partition, l_first, l_upto, l_epoch, l_ready_at)
                   l(grp, claim, id, first, upto, epoch, ready_at)) a
        WHERE k.partition_id = a.id AND k.group_id = a.grp AND k.epoch = a.epoch;
        GET DIAGNOSTICS v_changed = ROW_COUNT;
        IF v_changed <> cardinality(l_group) THEN
            RAISE EXCEPTION 'a lane changed while it was held' USING ERRCODE = 'serialization_failure';
        END IF;

        RETURN QUERY
        SELECT l.grp, l.claim, l.id, l.name, l.first, l.upto, timestamptz_send(g_ends[l.grp]), s.first_pos, timestamptz_send(s.created_at),
               s.checksum, CASE WHEN c.known IS NOT TRUE THEN array_send(s.ends) END, CASE WHEN c.known IS NOT TRUE THEN s.body END,
               NULL::boolean, NULL::bytea, NULL::bytea, NULL::timestamptz
        FROM (SELECT u.*, array_position(p_cached, u.id) AS at
              FROM unnest(l_group, l_claim, l_partition, l_name, l_first, l_upto) u(grp, claim, id, name, first, upto)) l
        CROSS JOIN LATERAL (
            SELECT x.first_pos, x.created_at, x.checksum, x.ends, x.body FROM fairlane.segments x
            WHERE x.partition_id = l.id AND x.first_pos < l.upto
              AND x.first_pos >= (SELECT max(f.first_pos) FROM fairlane.segments f
                                  WHERE f.partition_id = l.id AND f.first_pos <= l.first)
            ORDER BY x.first_pos  -- here the index gives the order; outside, all bodies would be sorted
        ) s
        CROSS JOIN LATERAL (SELECT s.first_pos >= p_cached_from[l.at] AND s.first_pos < p_cached_upto[l.at] AS known) c;
    END IF;

    RETURN QUERY
    SELECT g.i::int, 0, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea, NULL::bigint,
           NULL::bytea, NULL::bytea, g.plain, timestamptz_send(t),
           timestamptz_send(CASE WHEN g.plain AND g.waits AND x.taken < g.claims THEN (
               SELECT k.ready_at FROM fairlane.cursors k
               WHERE k.group_id = g.id AND k.ready_at > t AND k.ready_at < fairlane.never()
               ORDER BY k.ready_at LIMIT 1) END),
           coalesce(l_due[array_position(l_group, g.i::int)], t)
    FROM unnest(p_groups, p_claims, p_waits, g_plain) WITH ORDINALITY g(id, claims, waits, plain, i)
    CROSS JOIN LATERAL (SELECT count(*) AS taken FROM unnest(l_group) l(grp) WHERE l.grp = g.i) x;
END $$;
