-- Earlier failures of a message, oldest first, as [{"at": microseconds, "error": text}]; the last one has columns of its own.
alter table failures add column history text not null default '[]';
alter table dead_letters add column history text not null default '[]';

-- When to append the letter to the queue that its queue names for that; null: it was, or no queue is named.
alter table dead_letters add column forward_at integer;

-- For finding the letters that wait for it.
create index dead_letters_forward on dead_letters (forward_at) where forward_at is not null;
