-- Up to this time ids were pushed that may have been pushed before, so that a call which comes late may be a repeat of
-- them.
alter table partitions add column doubted_until integer not null default 0;
