"""A store as large as the dashboard must handle quickly, filled through the broker in seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from fairlane.broker.broker import Broker
from fairlane.model.limits import BATCH_ITEMS_MAX, NEW_NAMES_MAX
from fairlane.model.message import PushItem
from fairlane.wire.schedules import ScheduleOptions

WIDE = "wide"
"""Name of the queue with many partitions."""
DEEP = "deep"
"""Name of the queue with one long lane."""
_PAYLOAD = b'{"n":1}'
_AT_ONCE = 100


class Size(NamedTuple):
    queues: int = 10_000
    partitions: int = 100_000
    messages: int = 1_000_000
    groups: int = 2_000
    schedules: int = 1_000


async def fill(url: str, size: Size) -> None:
    """Create queues, partitions of one message each, one long lane, groups and schedules."""
    async with Broker.open(url) as broker:

        async def define(n: int) -> None:
            options = ScheduleOptions(queue=f"queue-{n:05}", data=msgspec.Raw(_PAYLOAD), cron="0 2 * * *")
            await broker.schedules.define(f"schedule-{n:04}", options)

        async def pop(n: int) -> None:
            await broker.pop(f"queue-{n:05}", group="billing", batch=1)

        await _push(broker, (f"queue-{n:05}" for n in range(size.queues)), NEW_NAMES_MAX)
        await _each(define, size.schedules)
        await _each(pop, size.groups)
        await _push(broker, (f"{WIDE}/customer-{n:06}" for n in range(size.partitions)), NEW_NAMES_MAX)
        await broker.pop(WIDE, group="billing", batch=1)
        await _push(broker, (DEEP for _ in range(size.messages)), BATCH_ITEMS_MAX)
        await broker.pop(DEEP, group="billing", batch=10)


async def _each(work: Callable[[int], Awaitable[None]], count: int) -> None:
    for first in range(0, count, _AT_ONCE):
        await asyncio.gather(*map(work, range(first, min(count, first + _AT_ONCE))))


async def _push(broker: Broker, names: Iterable[str], at_once: int) -> None:
    left = iter(names)
    while some := list(islice(left, at_once)):
        items = []
        for name in some:
            queue, _, partition = name.partition("/")
            items.append(PushItem(queue=queue, partition=partition or "Default", payload=_PAYLOAD))
        await broker.push_many(items)


def lengthen(file: Path, times: int) -> None:
    """Multiply the messages of the long lane by copying its rows.

    The copies have the ids of the originals, so pages can read them, but a push would find duplicates.
    """
    database = apsw.Connection(str(file))
    with database:
        [[partition, head]] = database.execute(
            "select p.id, p.head from partitions p join queues q on q.id = p.queue_id where q.name = ?", (DEEP,)
        )
        columns = "n, created_at, checksum, ends, keys, body"
        database.execute(
            f"with recursive turns(t) as (select 1 union all select t + 1 from turns where t < ? - 1) "
            f"insert into segments (partition_id, first_pos, {columns}) "
            f"select partition_id, first_pos + t * ?, {columns} from turns, segments where partition_id = ?",
            (times, head, partition),
        )
        database.execute("update partitions set head = head * ? where id = ?", (times, partition))
    database.close()
