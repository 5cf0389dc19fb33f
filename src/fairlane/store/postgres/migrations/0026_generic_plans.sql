-- push, pop and ack, and claim and settle of unordered queues, keep their plans. Planned anew for each call, as PostgreSQL
-- prefers once it has counted the versions that a transaction left open elsewhere keeps, they would cost a fifth more.
SELECT 1;
