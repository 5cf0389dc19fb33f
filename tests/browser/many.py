"""A store as large as pages must be fast with, filled by the broker itself in seconds."""

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
"""The queue of many partitions."""
DEEP = "deep"
"""The queue of one long lane."""
_PAYLOAD = b'{"n":1}'
_AT_ONCE = 100


class Size(NamedTuple):
    queues: int = 10_000
    partitions: int = 100_000
    messages: int = 1_000_000
    groups: int = 2_000
    schedules: int = 1_000


async def fill(url: str, size: Size) -> None:
    """Queues and partitions of one message each, one long lane, groups of queues and schedules."""
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
    """Make the long lane so many times as long, as if its messages had been pushed again and again. What a page
    reads of it costs what it costs; who pushes to it would find their ids."""
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
