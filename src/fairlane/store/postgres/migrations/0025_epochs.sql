-- The function of 14 arguments takes its place.
DROP FUNCTION IF EXISTS fairlane.pop(int, bigint, bigint, uuid[], int[], int[], boolean, int, bigint, timestamptz, bigint, boolean,
                                    timestamptz);

-- A row that is updated often is found by its newest epoch. While some transaction elsewhere stays open, none of the row's old
-- versions can be removed: a look-up by the id alone would walk over all of them, one that begins at the highest epoch meets the
-- living version first. Statements that look up one row thousands of times an hour do so; for all others the id is enough.

-- An epoch of a partition is 16 pushes: the others touch no index, if there is room on their page. No index but the key's may be unique,
-- for the check would visit every version. That a queue has one partition of a name is kept by the queue's lock, under which
-- partitions are made.
ALTER TABLE fairlane.partitions
    ADD pushes bigint NOT NULL DEFAULT 0,
    ADD epoch bigint GENERATED ALWAYS AS (pushes >> 4) STORED,
    DROP CONSTRAINT partitions_pkey,
    ADD PRIMARY KEY (shard, id, epoch),
    DROP CONSTRAINT partitions_shard_queue_id_name_key;
-- The shard comes second here, or a plan made for a small table may take this index for the key.
CREATE INDEX partitions_name ON fairlane.partitions (queue_id, shard, name);

-- Every update of a cursor touches the index of ready lanes anyway. That a group has one cursor in a partition is kept by the locks
-- under which cursors are made.
ALTER TABLE fairlane.cursors
    ADD epoch bigint NOT NULL DEFAULT 0,
    DROP CONSTRAINT cursors_pkey,
    ADD PRIMARY KEY (shard, partition_id, group_id, epoch);
