-- For a pop: which lanes have messages that are due, without a look at each of them.
drop index failures_due;
create index failures_due on failures (group_id, due_at, partition_id) where due_at is not null;
