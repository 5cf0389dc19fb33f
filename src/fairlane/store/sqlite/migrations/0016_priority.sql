-- A lane that becomes ready counts as if it had waited this much longer, in microseconds: its priority.
alter table partitions add column boost integer not null default 0;
