"""Job queues on PostgreSQL that a worker is measured beside. Each module is a program of an environment of its own, and
prints what it measured as JSON."""
