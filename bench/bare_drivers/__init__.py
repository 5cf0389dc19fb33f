"""A queue in a plain table, one row per message, on the bare database drivers.

It keeps the same promises in the obvious way. A push takes positions without gaps in commit order under the row lock
of the partition, has a unique transaction id per partition, and is durable when the call returns. A pop locks rows,
and an ack marks them done. Within that shape it is written to be fast: one round trip per push, prepared statements,
arrays and binary ids.
"""

from __future__ import annotations

from bench.bare_drivers import postgres, sqlite
from bench.load import Load, Rate


async def push(url: str, load: Load) -> Rate:
    """Push 100 messages per call, one to each of 100 partitions. A repeated id violates the unique index."""
    return await (sqlite.push if url.startswith("sqlite:") else postgres.push)(url, load)


async def pop_ack(url: str, load: Load) -> Rate:
    """Pop and ack 100 rows at a time from a backlog, while other consumers may do the same.

    PostgreSQL locks the rows and marks them done in one transaction. SQLite has no row locks, so one transaction marks
    them taken and the next marks them done.
    """
    return await (sqlite.pop_ack if url.startswith("sqlite:") else postgres.pop_ack)(url, load)
