"""A broker in a separate process, controlled by its arguments, that prints each step that it finished.

    push URL OPTIONS QUEUE NAME COUNT   push [NAME, n] to partition p<n % 3>, one at a time
    work URL OPTIONS QUEUE COUNT        pop and ack until COUNT messages of anybody are finished
    hold URL OPTIONS QUEUE SECONDS      pop one message and keep it
    crash URL OPTIONS QUEUE POINT       push [POINT, n] three times, to wait, and die where POINT says

OPTIONS are the options of the store, and `ahead`: the seconds by which this broker's clock is ahead of the host's.
Each line is JSON and is written before the next step begins, so a step whose line was read is finished.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from fairlane.broker.admission import Limit
from fairlane.broker.broker import Broker
from fairlane.errors import FairlaneError
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.operations import (
    Application,
    ApplyResult,
    ClaimedBacklog,
    EnqueueResult,
    NewOperation,
)
from fairlane.store.families.operations import Operations


def tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def push(broker: Broker, queue: str, name: str, count: str) -> None:
    for n in range(int(count)):
        outcome = await broker.push(queue, [name, n], partition=f"p{n % 3}", transaction_id=f"{name}-{n}")
        tell([name, n, outcome.status])


async def work(broker: Broker, queue: str, count: str) -> None:
    while sum(lane.committed for lane in await broker.groups.lanes(queue)) < int(count):
        batch = await broker.pop(queue, batch=5, wait=0.1)
        for delivery in batch:
            tell([delivery.partition, delivery.position, delivery.data])
        await broker.ack(batch)


async def hold(broker: Broker, queue: str, seconds: str) -> None:
    [delivery] = await broker.pop(queue, lease_seconds=int(seconds), wait=10)
    tell(delivery.data)
    await asyncio.Event().wait()


class Doomed:
    """The operations of a store, and the end of this process at one point: after the commit that enqueues the last
    push, after the claim, in the transaction that applies it, and after that one's commit."""

    def __init__(self, operations: Operations, point: str) -> None:
        self._operations = operations
        self._point = point
        self._left = 3

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def _reached(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        results = await self._operations.enqueue(operations)
        self._left -= 1
        if not self._left:
            self._reached("enqueued")
        return results

    async def claim(self, worker: str, **limits: Any) -> list[ClaimedBacklog]:
        claimed = await self._operations.claim(worker, **limits)
        if claimed:
            self._reached("claimed")
        return claimed

    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        for one in work:
            one.results = partial(self._dying, one.results)
        results = await self._operations.apply(work)
        self._reached("applied")
        return results

    def _dying(self, results: Callable[[Any], list[bytes]], result: Any) -> list[bytes]:
        self._reached("applying")
        return results(result)


async def crash(broker: Broker, queue: str, point: str) -> None:
    await broker._engine.operation_drain.stop()
    broker._engine.admission.limits = {"push": Limit(-1.0, 10_000)}
    doomed: Any = Doomed(broker._engine.store.operations, point)
    broker._engine.store.operations = doomed
    for n in range(3):
        outcome = await broker.push(queue, [point, n], transaction_id=f"{point} {n}")
        tell([n, outcome.status])
    broker._engine.operation_drain.start()
    await asyncio.Event().wait()


VERBS: dict[str, Callable[..., Awaitable[None]]] = {"push": push, "work": work, "hold": hold, "crash": crash}


async def main(verb: str, url: str, options: str, *arguments: str) -> None:
    given = json.loads(options)
    ahead = given.pop("ahead", None)
    clock = None if ahead is None else lambda: wall_clock() + ahead * 1_000_000
    try:
        async with Broker.open(url, clock=clock, **given) as broker:
            tell("open")
            await VERBS[verb](broker, *arguments)
    except FairlaneError as error:
        tell({"refused": error.code, "because": str(error)})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
