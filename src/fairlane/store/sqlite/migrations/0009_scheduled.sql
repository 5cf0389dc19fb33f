-- Messages that wait for their time; they get their position when they are due.
create table scheduled (
    -- When to append it: its time, or later while its queue is full.
    due_at integer not null,
    message_id text not null,
    partition_id integer not null,
    queue_id integer not null,
    partition_name text not null,
    key integer not null,
    id_ms integer not null,
    given integer not null,
    transaction_id text not null,
    message blob not null,
    -- For cancelling, rescheduling, and a second message of the same id; for purging a partition.
    unique (partition_id, key)
) strict;

-- For firing: what is due, oldest first.
create index scheduled_due on scheduled (due_at, message_id);
