-- `look`: made by a person's look, and not popped for by a consumer since. `counts`: what it has not finished takes a place
-- in a limited queue.
alter table groups add column look integer not null default 0;
alter table groups add column counts integer not null default 1;

create view counting as
select c.partition_id, c.group_id, c.committed, c.claimed
from cursors c join groups g on g.id = c.group_id
where g.counts;
