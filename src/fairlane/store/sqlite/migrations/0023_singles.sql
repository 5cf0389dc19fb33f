-- For settling a lane: messages that came again and are in a consumer's hands, however many others wait for their time.
create index failures_out on failures (partition_id, group_id, token) where token is not null;
