"""A broker in a process of its own, told what to do by its arguments and telling what it did line by line.

    push URL OPTIONS QUEUE NAME COUNT   push [NAME, n] to partition p<n % 3>, one at a time
    work URL OPTIONS QUEUE COUNT        pop and ack until COUNT messages of anybody are finished
    hold URL OPTIONS QUEUE SECONDS      pop one message and keep it

Each line is JSON, written before the next step begins: what was read here was done.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from fairlane.broker import Broker
from fairlane.errors import FairlaneError


def tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def push(broker: Broker, queue: str, name: str, count: str) -> None:
    for n in range(int(count)):
        outcome = await broker.push(queue, [name, n], partition=f"p{n % 3}", transaction_id=f"{name}-{n}")
        tell([name, n, outcome.status])


async def work(broker: Broker, queue: str, count: str) -> None:
    while sum(lane.committed for lane in await broker.lanes(queue)) < int(count):
        batch = await broker.pop(queue, batch=5, wait=0.1)
        for delivery in batch:
            tell([delivery.partition, delivery.position, delivery.json()])
        await broker.ack(batch)


async def hold(broker: Broker, queue: str, seconds: str) -> None:
    [delivery] = await broker.pop(queue, lease_seconds=int(seconds), wait=10)
    tell(delivery.json())
    await asyncio.Event().wait()


VERBS: dict[str, Callable[..., Awaitable[None]]] = {"push": push, "work": work, "hold": hold}


async def main(verb: str, url: str, options: str, *arguments: str) -> None:
    try:
        async with Broker.open(url, **json.loads(options)) as broker:
            tell("open")
            await VERBS[verb](broker, *arguments)
    except FairlaneError as error:
        tell({"refused": error.code, "because": str(error)})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
