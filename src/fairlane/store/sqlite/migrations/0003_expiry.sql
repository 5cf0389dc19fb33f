-- Messages dropped because they were too old; those that were dead-lettered for it count as dead.
alter table cursors add column expired integer not null default 0;
