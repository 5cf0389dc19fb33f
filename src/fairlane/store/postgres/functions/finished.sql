-- How many messages of these partitions every group has finished, counted from position 0.
CREATE OR REPLACE FUNCTION fairlane.finished(p_shard int, p_partitions bigint[]) RETURNS bigint
LANGUAGE sql AS $$
    SELECT coalesce(sum(x.done), 0)::bigint
    FROM (SELECT min(c.committed) AS done FROM fairlane.cursors c
          WHERE c.shard = p_shard AND c.partition_id = ANY (p_partitions) GROUP BY c.partition_id) x;
$$;
