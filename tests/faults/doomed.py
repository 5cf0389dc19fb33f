"""A broker that kills itself with SIGKILL at one point: `python -m tests.faults.doomed URL JOURNAL POINT`.

It says which numbers it answered, and the operations they wait as. The real parts run; only the call beside the
point is wrapped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from fairlane.broker.broker import Broker
from fairlane.broker.deferral.entries import push_backlog, push_entry
from fairlane.broker.flags import PUSH_MAINTENANCE
from fairlane.model.ids import uuid7
from fairlane.model.message import PushItem
from fairlane.store.journal.files import Leftover
from fairlane.store.journal.journal import Journal

QUEUE = "orders"
COUNT = 4
POINTS = {
    "sending": "a push is about to go to the store",
    "stored": "the store has committed a push that is not answered yet",
    "appending": "the journal is about to commit",
    "appended": "the journal has committed what is not answered yet",
    "draining": "what the journal holds is about to go to the store",
    "drained": "the store has it, and the journal too",
    "recorded": "the store knows their operations too, and the journal still has them",
    "removed": "the journal does not have it any more",
    "adopted": "two journals have what a dead process left",
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(call: Callable[..., Awaitable[Any]], *, before: bool, after_calls: int = 1) -> Callable[..., Awaitable[Any]]:
    """`call`, and the end of this process at the edge of it, the n-th time."""
    left = after_calls

    async def run(*values: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if before and not left:
            die()
        result = await call(*values, **named)
        if not left:
            die()
        return result

    return run


def tell(number: int, operation: str | None) -> None:
    sys.stdout.write(f"{number} {operation or ''}\n")
    sys.stdout.flush()


async def push(broker: Broker, point: str) -> None:
    for number in range(COUNT):
        outcome = await broker.push(QUEUE, number, partition=point)
        tell(number, outcome.operation_id)


async def adopt(journal: Journal, directory: str) -> None:
    """What another process left, in order."""
    other = await Journal.open(directory, bytes_max=10**9, store="another")
    for number in range(COUNT):
        item = PushItem(queue=QUEUE, partition="adopted", payload=str(number).encode())
        backlog = push_backlog("default", item)
        id = uuid7()
        await other.append([push_entry(backlog, [(item, f"left behind {number}")], UUID(id))])
        tell(number, id)
    await other.close()
    Leftover.drop = lambda *_: die()  # type: ignore[method-assign]
    await journal.adopt()


async def main(url: str, directory: str, point: str) -> None:
    async with Broker.open(url, journal=directory) as broker:
        journal: Any = broker.journal
        messages: Any = broker.store.messages
        if point in ("sending", "stored"):
            messages.push = dying(messages.push, before=point == "sending", after_calls=COUNT)
            await push(broker, point)
        await broker.flags.turn(PUSH_MAINTENANCE, True)
        if point == "adopted":
            await adopt(journal, directory)
        if point in ("appending", "appended"):
            journal.append = dying(journal.append, before=point == "appending", after_calls=COUNT)
        await push(broker, point)
        pusher: Any = broker._pusher
        if point in ("draining", "drained"):
            pusher.run = dying(pusher.run, before=point == "draining")
        elif point == "recorded":
            operations: Any = broker.store.operations
            operations.record = dying(operations.record, before=False)
        else:
            journal.remove = dying(journal.remove, before=False)
        await broker.flags.turn(PUSH_MAINTENANCE, False)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
