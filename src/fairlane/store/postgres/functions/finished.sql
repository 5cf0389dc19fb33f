-- How many messages of these partitions every group that counts has finished, counted from position 0, deleted ones left out.
CREATE OR REPLACE FUNCTION fairlane.finished(p_shard int, p_partitions bigint[]) RETURNS bigint
LANGUAGE sql AS $$
    SELECT coalesce(sum(x.done - (SELECT count(*) FROM fairlane.skips s
                                  WHERE s.shard = p_shard AND s.partition_id = x.id AND s.position < x.done
                                    AND s.group_id = 0)
                        - CASE WHEN x.shared THEN fairlane.in_flight(p_shard, x.id, x.done) ELSE 0 END), 0)::bigint
    FROM (SELECT c.partition_id AS id, min(greatest(c.committed, c.claimed)) AS done, bool_or(c.claimed > 0) AS shared
          FROM fairlane.counting c
          WHERE c.shard = p_shard AND c.partition_id = ANY (p_partitions) GROUP BY c.partition_id) x;
$$;
