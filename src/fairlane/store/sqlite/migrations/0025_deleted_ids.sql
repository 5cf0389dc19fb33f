-- Ids of messages that went before the window of their queue had passed, as the segment that held them: ids that are
-- not UUIDv7, or were old when they were pushed, are in message_keys too. Ids are 16 bytes each.
create table deleted_ids (
    partition_id integer not null,
    created_at integer not null,
    first_pos integer not null,
    forget_at integer not null,
    keys blob not null,
    message_ids blob not null,
    -- null: the same as the messages', as where the broker made them. Zeros where message_keys has the id.
    transaction_ids blob,
    primary key (partition_id, created_at, first_pos)
) strict;

-- For retention: those whose window has passed.
create index deleted_ids_forget on deleted_ids (forget_at);

-- Of what lies below this position nothing is remembered.
alter table trims add column cleared integer not null default 0;
