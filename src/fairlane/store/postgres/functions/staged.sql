-- Messages that other programs enqueue and complete in their own transactions. `enqueue` and `complete` are public: their names,
-- arguments and results stay as they are. They run with the rights of the owner, so every name in them is qualified.

-- The role of the caller: the one that SET ROLE chose, or the login role. `current_user` is the owner here. It sets no search_path, so
-- that it can be inlined. Its callers set one.
CREATE OR REPLACE FUNCTION fairlane.calling_role() RETURNS name LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(pg_catalog.current_setting('role'), 'none'), session_user)::pg_catalog.name;
$$;

-- True if the caller may enqueue into a queue and complete messages of it, also as a member of a role. In plpgsql, because a function
-- in SQL is planned in every transaction.
CREATE OR REPLACE FUNCTION fairlane.may_enqueue(p_role name, p_tenant bigint, p_queue text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM fairlane.enqueue_grants g
                   WHERE g.tenant_id = p_tenant AND g.queue IN (p_queue, '')
                     AND pg_has_role(p_role, to_regrole(quote_ident(g.role_name)), 'USAGE'))
        OR EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = 'fairlane.staged'::regclass AND pg_has_role(p_role, c.relowner, 'USAGE'));
END $$;

-- Enqueues a message in the transaction of the caller and returns its transactionId. A broker moves it to its partition soon after
-- the commit. What is wrong with it fails here, in the transaction of the caller.
CREATE OR REPLACE FUNCTION fairlane.enqueue(
    queue text,
    payload json,
    partition text DEFAULT 'Default',
    transaction_id text DEFAULT NULL,     -- a message with a known id is stored once; NULL makes a new id
    type text DEFAULT NULL,
    headers json DEFAULT NULL,            -- an object of strings
    deliver_at timestamptz DEFAULT NULL,
    priority int DEFAULT NULL,            -- 0 to 9
    max_attempts int DEFAULT NULL,
    tenant text DEFAULT 'default'
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    t timestamptz := clock_timestamp();
    -- A new id is a UUIDv7: the time in milliseconds, the version, and random bits around the variant.
    v_id text := coalesce(
        transaction_id,
        encode(int8send((date_part('epoch', t) * 1000)::bigint << 16 | 28672 | (random() * 4095)::bigint)
               || int8send((random() * 4611686018427387903)::bigint | (-9223372036854775807 - 1)), 'hex')::uuid::text);
    v_payload text := payload::text;
    v_tenant bigint;
BEGIN
    -- A short message with the usual arguments needs no checks. Every expression and table here adds to the cost of each call.
    IF (queue <> '' AND partition <> '' AND v_id <> '' AND coalesce(type, 'none') <> '' AND octet_length(v_payload) <= 256
        AND octet_length(concat(queue, partition, v_id, type)) <= 255
        AND num_nonnulls(headers, deliver_at, priority, max_attempts) = 0) IS NOT TRUE THEN
        PERFORM fairlane.check_message(queue, v_payload, partition, v_id, type, headers, deliver_at, priority, max_attempts);
    END IF;
    SELECT g.tenant_id INTO v_tenant
    FROM fairlane.enqueue_grants g JOIN fairlane.queues q ON q.tenant_id = g.tenant_id AND q.name = queue
    WHERE g.role_name = fairlane.calling_role() AND g.tenant = tenant AND g.queue IN (queue, '') AND NOT g.sealed AND q.enqueued;
    IF v_tenant IS NULL THEN
        v_tenant := fairlane.check_enqueue(fairlane.calling_role(), tenant, queue, partition);
    END IF;
    INSERT INTO fairlane.staged (tenant_id, queue, bucket, created_at, partition_name, transaction_id, given, type, headers, deliver_at,
                                 priority, max_attempts, payload)
    VALUES (v_tenant, queue, hashtextextended(partition, 0) & 7, t, partition, v_id, transaction_id IS NOT NULL, type,
            headers::text, deliver_at, priority, max_attempts, v_payload);
    RETURN v_id;
END $$;

-- Raises if an argument of `enqueue` is invalid.
CREATE OR REPLACE FUNCTION fairlane.check_message(
    p_queue text, p_payload text, p_partition text, p_transaction_id text, p_type text, p_headers json, p_deliver_at timestamptz,
    p_priority int, p_max_attempts int
) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_queue IS NULL OR p_queue = '' OR length(p_queue) > 255 THEN
        PERFORM fairlane.refuse_name('queue', p_queue);
    ELSIF p_partition IS NULL OR p_partition = '' OR length(p_partition) > 255 THEN
        PERFORM fairlane.refuse_name('partition', p_partition);
    ELSIF p_transaction_id = '' OR length(p_transaction_id) > 255 THEN
        PERFORM fairlane.refuse_name('transaction_id', p_transaction_id);
    ELSIF p_type = '' OR length(p_type) > 255 THEN
        PERFORM fairlane.refuse_name('type', p_type);
    ELSIF p_payload IS NULL THEN
        RAISE EXCEPTION 'payload must not be NULL; pass ''null''::json for an empty one' USING ERRCODE = 'invalid_parameter_value';
    ELSIF octet_length(p_payload) > 4194304 THEN
        RAISE EXCEPTION 'payload has % bytes; at most 4194304 are allowed', octet_length(p_payload)
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'priority is %; it must be between 0 and 9', p_priority USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_max_attempts NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'max_attempts is %; it must be between 1 and 10000', p_max_attempts USING ERRCODE = 'invalid_parameter_value';
    ELSIF p_deliver_at NOT BETWEEN '1970-01-01 00:00Z' AND '2254-12-31 00:00Z' THEN
        RAISE EXCEPTION 'deliver_at is %; it must be between 1970 and 2254', p_deliver_at USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_headers IS NOT NULL THEN
        PERFORM fairlane.check_headers(p_headers);
    END IF;
    IF length(p_payload) > 256 THEN  -- shorter ones cannot be nested too deeply
        PERFORM fairlane.check_depth(p_payload);
    END IF;
END $$;

-- Raises why a name cannot be stored.
CREATE OR REPLACE FUNCTION fairlane.refuse_name(p_what text, p_name text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_name IS NULL OR p_name = '' THEN
        RAISE EXCEPTION '% must not be empty', p_what USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RAISE EXCEPTION '% has % characters; at most 255 are allowed', p_what, length(p_name) USING ERRCODE = 'invalid_parameter_value';
END $$;

-- Raises unless headers are an object of strings within the limits.
CREATE OR REPLACE FUNCTION fairlane.check_headers(p_headers json) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_count bigint;
    v_chars bigint;
    v_bad text;
BEGIN
    IF json_typeof(p_headers) <> 'object' THEN
        RAISE EXCEPTION 'headers must be an object of strings, not %', json_typeof(p_headers) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT count(*), sum(length(h.key) + length(h.value #>> '{}')),
           min(h.key) FILTER (WHERE json_typeof(h.value) <> 'string' OR h.key = '' OR length(h.key) > 255)
    INTO v_count, v_chars, v_bad FROM json_each(p_headers) h;
    IF v_bad IS NOT NULL THEN
        RAISE EXCEPTION 'header "%" must be a string, and its name must have 1 to 255 characters', left(v_bad, 80)
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF v_count > 64 THEN
        RAISE EXCEPTION 'a message may have 64 headers, not %', v_count USING ERRCODE = 'invalid_parameter_value';
    ELSIF v_chars > 4096 THEN
        RAISE EXCEPTION 'headers have % characters in all; at most 4096 are allowed', v_chars USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

-- Raises if JSON is nested deeper than 128 levels. Every round removes the innermost brackets.
CREATE OR REPLACE FUNCTION fairlane.check_depth(p_json text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_rest text;
BEGIN
    IF length(translate(p_json, '[{', '')) >= length(p_json) - 128 THEN
        RETURN;
    END IF;
    v_rest := regexp_replace(regexp_replace(p_json, '"(?:[^"\\]|\\.)*"', '', 1, 0), '[^][{}]', '', 1, 0);
    FOR i IN 1 .. 128 LOOP
        EXIT WHEN v_rest = '';
        v_rest := regexp_replace(v_rest, '\[\]|\{\}', '', 1, 0);
    END LOOP;
    IF v_rest <> '' THEN
        RAISE EXCEPTION 'payload is nested deeper than 128 levels' USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

-- Returns the tenant of a message to stage, by all rules. `enqueue` asks only if the usual case does not hold: an existing queue, a
-- grant to the caller itself, and no patterns of encrypted queues. Raises if the caller has no right, if the message would be stored in clear though its queue is encrypted,
-- or if the queue has one partition and the message another.
CREATE OR REPLACE FUNCTION fairlane.check_enqueue(p_role name, p_tenant text, p_queue text, p_partition text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_tenant bigint;
    o jsonb;
BEGIN
    SELECT n.id, coalesce(q.options, d.options) INTO v_tenant, o
    FROM fairlane.tenants n LEFT JOIN fairlane.queues q ON q.tenant_id = n.id AND q.name = p_queue
    LEFT JOIN fairlane.declared_queues d ON d.tenant = n.name AND d.name = p_queue
    WHERE n.name = p_tenant;
    IF v_tenant IS NULL OR NOT fairlane.may_enqueue(p_role, v_tenant, p_queue) THEN
        RAISE EXCEPTION 'role "%" may not enqueue into queue "%"', p_role, p_queue USING ERRCODE = 'insufficient_privilege',
            HINT = 'An operator can allow it: fairlane grant-enqueue ROLE --queue QUEUE.';
    ELSIF (o ->> 'encryption_enabled')::boolean OR EXISTS (SELECT 1 FROM fairlane.sealed_queues s WHERE p_queue ~ s.pattern) THEN
        RAISE EXCEPTION 'queue "%" is encrypted, and this message would be stored in clear until a broker moves it', p_queue
            USING ERRCODE = 'feature_not_supported', HINT = 'Push it with a client instead.';
    ELSIF o ->> 'ordering' = 'fifo' AND p_partition <> 'Default' THEN
        RAISE EXCEPTION 'queue "%" is fifo: its only partition is "Default"', p_queue USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN v_tenant;
END $$;

-- Acks a message in the transaction of the caller. Raises unless the lease is live and holds the message, so that the transaction
-- rolls back. Until it ends, no other consumer gets the message, and pushes to its partition wait.
CREATE OR REPLACE FUNCTION fairlane.complete(lease text, partition_id text, "position" bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    v_role name := fairlane.calling_role();
    v_lease text[] := regexp_match(lease, '^([1-9][0-9]{0,17})\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$');
    v_partition text[] := regexp_match(partition_id, '^([0-9]{1,3})-([1-9][0-9]{0,13})$');
    v_group bigint := v_lease[1];
    v_id bigint := (v_partition[1]::bigint << 45) + v_partition[2]::bigint;  -- the cell, and the number in it
    v_queue text;
    v_tenant bigint;
    v_unordered boolean;
    v_state text;
BEGIN
    SELECT q.name, q.tenant_id, q.options ->> 'ordering' = 'unordered' INTO v_queue, v_tenant, v_unordered
    FROM fairlane.groups g JOIN fairlane.queues q ON q.id = g.queue_id
    WHERE g.id = v_group AND EXISTS (SELECT 1 FROM fairlane.partitions p WHERE p.id = v_id AND p.queue_id = q.id);
    IF v_queue IS NOT NULL AND NOT fairlane.may_enqueue(v_role, v_tenant, v_queue) THEN
        RAISE EXCEPTION 'role "%" may not complete messages of queue "%"', v_role, v_queue USING ERRCODE = 'insufficient_privilege',
            HINT = 'An operator can allow it: fairlane grant-enqueue ROLE --queue QUEUE.';
    ELSIF v_unordered THEN
        SELECT CASE WHEN a.lost <> '{}' OR a.finished <> '{}' THEN 'lost' ELSE a.state END INTO v_state
        FROM fairlane.ack_unordered(
            p_partitions => ARRAY[v_id], p_groups => ARRAY[v_group], p_tokens => ARRAY[v_lease[2]::uuid], p_release => ARRAY[false],
            p_item_lane => ARRAY[1], p_verdicts => ARRAY['done'], p_first => ARRAY["position"], p_upto => ARRAY["position" + 1],
            p_delay_ms => ARRAY[-1]::bigint[], p_errors => ARRAY[''], p_tracebacks => '{}', p_result_lane => '{}', p_result_at => '{}',
            p_results => '{}', p_now => NULL) a;
    ELSIF v_queue IS NOT NULL THEN
        SELECT CASE WHEN "position" < a.before OR "position" >= a."limit" OR "position" = ANY (a.finished) THEN 'lost' ELSE a.state END
        INTO v_state
        FROM fairlane.ack(
            p_partitions => ARRAY[v_id], p_groups => ARRAY[v_group], p_fenced => ARRAY[true], p_tokens => ARRAY[v_lease[2]::uuid],
            p_upto => ARRAY["position" + 1], p_first => ARRAY["position"], p_nack => ARRAY[-1]::bigint[], p_charge => ARRAY[false],
            p_delay_ms => ARRAY[-1]::bigint[], p_errors => ARRAY[''], p_tracebacks => '{}', p_dead_lane => '{}', p_dead_at => '{}',
            p_dead_error => '{}', p_dead_traceback => '{}', p_ahead_lane => '{}', p_ahead_first => '{}', p_ahead_upto => '{}',
            p_result_lane => '{}', p_result_at => '{}', p_results => '{}', p_now => NULL) a;
    END IF;
    IF v_queue IS NULL AND (v_partition[1]::int <> coalesce((SELECT i.cell FROM fairlane.identity i), 0)
                            OR EXISTS (SELECT 1 FROM fairlane.moved m WHERE m.id = -v_group)) THEN
        RAISE EXCEPTION 'the queue of this message is in another database, so it cannot be completed in this transaction'
            USING ERRCODE = 'feature_not_supported',
            HINT = 'Ack it with a client, or move the queue to the home: fairlane cluster move-queue QUEUE --to 0.';
    ELSIF v_state = 'operations_ahead' THEN
        RAISE EXCEPTION 'earlier acks of this partition are not applied yet; try again' USING ERRCODE = 'serialization_failure';
    ELSIF v_state IS DISTINCT FROM 'ok' THEN
        RAISE EXCEPTION 'the lease of this message is lost, or the message is finished; roll back' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;

REVOKE ALL ON FUNCTION fairlane.enqueue(text, json, text, text, text, json, timestamptz, int, int, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION fairlane.complete(text, text, bigint) FROM PUBLIC;

-- Staged messages to move, by queue and bucket after the given ones, and in each in the order of their ids. A bucket that another
-- session moves is left out, and so are queues and partitions that wait. The caller holds the buckets until its transaction ends.
CREATE OR REPLACE FUNCTION fairlane.open_staged(
    p_after_tenant bigint, p_after_queue text, p_after_bucket int,
    p_tenants bigint[], p_queues text[], p_partitions text[],  -- what waits: a partition, or with an empty name the whole queue
    p_limit int, p_bytes bigint
) RETURNS TABLE (tenant_id bigint, tenant text, queue text, bucket int, id bigint, partition_name text, transaction_id text, given boolean,
                 type text, headers text, deliver_at timestamptz, priority int, max_attempts int, payload bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    c record;
    v_tenant bigint := p_after_tenant;
    v_queue text := p_after_queue;
    v_bucket int := p_after_bucket;
    v_left int := p_limit;
    v_around boolean := false;
    v_waiting text[];
    v_count int;
BEGIN
    LOOP
        SELECT s.tenant_id, s.queue, s.bucket, n.name INTO c
        FROM (SELECT o.tenant_id, o.queue, o.bucket FROM fairlane.staged o
              WHERE (o.tenant_id, o.queue, o.bucket) > (v_tenant, v_queue, v_bucket)
              ORDER BY o.tenant_id, o.queue, o.bucket LIMIT 1) s
        JOIN fairlane.tenants n ON n.id = s.tenant_id;
        IF NOT FOUND AND NOT v_around THEN
            v_around := true;
            v_tenant := 0;
            v_queue := '';
            v_bucket := -1;
            CONTINUE;
        END IF;
        EXIT WHEN c.tenant_id IS NULL OR v_around AND ROW (c.tenant_id, c.queue, c.bucket::int) > ROW (p_after_tenant, p_after_queue, p_after_bucket);
        v_tenant := c.tenant_id;
        v_queue := c.queue;
        v_bucket := c.bucket;
        v_waiting := ARRAY(SELECT w.partition FROM unnest(p_tenants, p_queues, p_partitions) w(tenant, queue, partition)
                           WHERE w.tenant = v_tenant AND w.queue = v_queue);
        IF '' = ANY (v_waiting) THEN
            v_bucket := 32767;
            CONTINUE;
        END IF;
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtextextended(concat('fairlane.staged ', v_tenant, ' ', v_bucket, ' ', v_queue), 0));
        -- Its snapshot is newer than the lock, so it sees what the previous mover left.
        RETURN QUERY
        SELECT x.tenant_id, c.name, x.queue, x.bucket::int, x.id, x.partition_name, x.transaction_id, x.given, x.type, x.headers,
               x.deliver_at, x.priority, x.max_attempts, convert_to(x.payload, 'UTF8')
        FROM (SELECT s.*, sum(octet_length(s.payload)) OVER (ORDER BY s.id) - octet_length(s.payload) AS bytes_before
              FROM (SELECT o.* FROM fairlane.staged o
                    WHERE o.tenant_id = v_tenant AND o.queue = v_queue AND o.bucket = v_bucket AND o.partition_name <> ALL (v_waiting)
                    ORDER BY o.id LIMIT v_left) s) x
        WHERE x.bytes_before <= p_bytes ORDER BY x.id;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_left := v_left - v_count;
        EXIT WHEN v_left <= 0;
    END LOOP;
END $$;

-- Deletes staged messages that were moved. Returns their number. The table is often empty when it is analyzed. A join would then walk
-- all of it for each message, so each row is looked up separately first.
CREATE OR REPLACE FUNCTION fairlane.delete_staged(p_tenants bigint[], p_queues text[], p_buckets int[], p_ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_count bigint;
BEGIN
    DELETE FROM fairlane.staged s WHERE s.ctid = ANY (ARRAY(
        SELECT x.ctid FROM unnest(p_tenants, p_queues, p_buckets, p_ids) u(tenant, queue, bucket, id)
        CROSS JOIN LATERAL (
            SELECT o.ctid FROM fairlane.staged o
            WHERE o.tenant_id = u.tenant AND o.queue = u.queue AND o.bucket = u.bucket::smallint AND o.id = u.id LIMIT 1) x));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;

-- Makes a message that was just pushed a dead letter of every group, which nobody receives.
CREATE OR REPLACE FUNCTION fairlane.refuse_staged(p_queue bigint, p_partition bigint, p_position bigint, p_error text, p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := coalesce(p_now, clock_timestamp());
    g record;
BEGIN
    PERFORM fairlane.delete_message(p_partition, p_position, '', p_now);
    FOR g IN SELECT x.id FROM fairlane.groups x WHERE x.queue_id = p_queue LOOP
        PERFORM fairlane.dead_letter(p_queue, p_partition, g.id, p_position, p_error, t, NULL);
        UPDATE fairlane.cursors k SET dead = k.dead + 1 WHERE k.partition_id = p_partition AND k.group_id = g.id;
    END LOOP;
END $$;

-- Staged messages of a tenant, or of all, by queue: their number, counted up to a limit, and the time of the oldest. The first row
-- of each bucket is the oldest of it.
CREATE OR REPLACE FUNCTION fairlane.staged_by_queue(p_tenant text, p_limit int)
RETURNS TABLE (tenant text, queue text, count bigint, oldest_at timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    c record;
    v_tenant bigint := 0;
    v_queue text := '';
BEGIN
    LOOP
        SELECT s.tenant_id, s.queue, n.name INTO c
        FROM (SELECT o.tenant_id, o.queue FROM fairlane.staged o WHERE (o.tenant_id, o.queue) > (v_tenant, v_queue)
              ORDER BY o.tenant_id, o.queue LIMIT 1) s
        JOIN fairlane.tenants n ON n.id = s.tenant_id;
        EXIT WHEN NOT FOUND;
        v_tenant := c.tenant_id;
        v_queue := c.queue;
        CONTINUE WHEN c.name <> p_tenant;
        RETURN QUERY
        SELECT c.name, v_queue,
               (SELECT count(*) FROM (SELECT 1 FROM fairlane.staged s WHERE s.tenant_id = v_tenant AND s.queue = v_queue LIMIT p_limit) x),
               (SELECT min(f.created_at) FROM generate_series(0, 7) b(bucket) CROSS JOIN LATERAL (
                    SELECT s.created_at FROM fairlane.staged s
                    WHERE s.tenant_id = v_tenant AND s.queue = v_queue AND s.bucket = b.bucket::smallint ORDER BY s.id LIMIT 1) f);
    END LOOP;
END $$;
