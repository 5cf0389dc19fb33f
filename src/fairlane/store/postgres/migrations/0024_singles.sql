-- settle: messages of a lane that came again and are in a consumer's hands, however many others wait for their time.
CREATE INDEX failures_out ON fairlane.failures (shard, partition_id, group_id, token) WHERE token IS NOT NULL;
