-- Acks of the partition, of any group, that wait as operations: while there are any, other acks of their lanes wait too.
ALTER TABLE fairlane.partitions ADD open_acks int NOT NULL DEFAULT 0;
-- Set only inside the transaction that applies the lane's acks.
ALTER TABLE fairlane.operation_lanes ADD passing boolean NOT NULL DEFAULT false;
UPDATE fairlane.partitions p SET open_acks = l.n
FROM (SELECT shard, partition_id, sum(open) AS n FROM fairlane.operation_lanes WHERE group_id <> 0 GROUP BY 1, 2) l
WHERE p.shard = l.shard AND p.id = l.partition_id;
