-- Earlier failures of a message, oldest first, as [{"at": microseconds, "error": text}]; the last one has columns of its own.
ALTER TABLE fairlane.failures ADD history jsonb NOT NULL DEFAULT '[]';
ALTER TABLE fairlane.dead_letters ADD history jsonb NOT NULL DEFAULT '[]';
-- When to append the letter to the queue that its queue names for that; NULL: it was, or no queue is named.
ALTER TABLE fairlane.dead_letters ADD forward_at timestamptz;
-- forward: letters that wait for it.
CREATE INDEX dead_letters_forward ON fairlane.dead_letters (shard, forward_at) WHERE forward_at IS NOT NULL;

-- It returns the history as well now, and chooses by the error.
DROP FUNCTION IF EXISTS fairlane.dead_letters_where(int, bigint, text, bigint, text[], timestamptz, timestamptz, boolean);
