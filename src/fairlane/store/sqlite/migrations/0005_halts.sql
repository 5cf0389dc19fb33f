-- Set while an operator keeps them from being read.
alter table queues add column paused_at integer;
alter table groups add column paused_at integer;
alter table partitions add column paused_at integer;
-- The lane was set aside, by an operator or with a message whose attempts are used up, until it is resumed.
alter table cursors add column parked integer not null default 0;
