-- Operations that failed: listed, counted and removed without a look at the others.
create index operations_failed on operations (id) where failed_at is not null;
