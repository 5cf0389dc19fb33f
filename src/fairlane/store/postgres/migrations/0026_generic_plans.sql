-- push, pop and ack keep the plans they began with. Planned anew for each call, as PostgreSQL prefers once it has counted
-- the versions that a transaction left open elsewhere keeps, they would cost a fifth more.
SELECT 1;
