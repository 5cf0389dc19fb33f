"""The same promises kept in the obvious way, one row per message, on the bare drivers.

Push: positions without gaps in commit order, taken under the partition's row lock, a unique transaction id
in each partition, durable when the call returns. Pop and ack: a row queue whose rows are locked, handed out
and marked done. Within that shape they are written to be fast: one round trip per push, prepared statements,
arrays, binary ids.
"""

from __future__ import annotations

from bench.load import Load, Rate
from bench.yardsticks import postgres, sqlite


async def push(url: str, load: Load) -> Rate:
    """100 messages a call, one to each of 100 partitions; a repeated id is an error of the unique index."""
    run = sqlite.push if url.startswith("sqlite:") else postgres.push
    return await run(url, load, dedup=False)


async def push_dedup(url: str, load: Load) -> Rate:
    """The same with a look-up first: a repeated id takes no position and is answered with its first one."""
    run = sqlite.push if url.startswith("sqlite:") else postgres.push
    return await run(url, load, dedup=True)


async def pop_ack(url: str, load: Load) -> Rate:
    """100 rows a time from a backlog; other consumers may work meanwhile.

    PostgreSQL: the rows stay locked while they are worked on and are marked done in the same transaction.
    SQLite has no row locks: they are marked taken in one transaction and done in the next.
    """
    if url.startswith("sqlite:"):
        return await sqlite.pop_ack(url, load, held=False)
    return await postgres.pop_ack(url, load)


async def pop_ack_held(url: str, load: Load) -> Rate:
    """SQLite with one transaction from pop to ack: no other can write while the consumer works."""
    return await sqlite.pop_ack(url, load, held=True)
