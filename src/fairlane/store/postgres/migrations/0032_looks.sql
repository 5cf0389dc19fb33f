-- `look`: made by a person's look, and not popped for by a consumer since. `counts`: what it has not finished takes a place
-- in a limited queue.
ALTER TABLE fairlane.groups ADD COLUMN look boolean NOT NULL DEFAULT false, ADD COLUMN counts boolean NOT NULL DEFAULT true;

CREATE VIEW fairlane.counting AS
SELECT c.shard, c.partition_id, c.group_id, c.committed, c.claimed
FROM fairlane.cursors c JOIN fairlane.groups g ON g.id = c.group_id
WHERE g.counts;
