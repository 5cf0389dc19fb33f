"""A store of several cells: complete PostgreSQL stores, each with some of the queues."""
