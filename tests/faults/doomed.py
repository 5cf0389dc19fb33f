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
from fairlane.broker.flags import PUSHES_PAUSED
from fairlane.model.ids import uuid7
from fairlane.model.message import PushItem
from fairlane.model.operation import push_payload
from fairlane.model.segment import pack
from fairlane.store.contract.journal import Backlog, NewEntry
from fairlane.store.journal.files import Leftover
from fairlane.store.journal.journal import Journal

QUEUE = "orders"
COUNT = 4
POINTS = {
    "sending": "a push is about to go to the store",
    "stored": "the store has committed a push that is not answered yet",
    "appending": "the journal is about to commit",
    "appended": "the journal has committed what is not answered yet",
    "moving": "what the journal holds is about to become operations of the store",
    "moved": "they are operations there, and the journal has them too",
    "removed": "the journal does not have them any more",
    "applying": "they are about to be applied",
    "applied": "they are applied, and nobody was told",
    "adopted": "two journals have what a dead process left",
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(call: Callable[..., Awaitable[Any]], *, before: bool, after_calls: int = 1) -> Callable[..., Awaitable[Any]]:
    """Wrap `call` so that the process kills itself at its n-th call, before or after it."""
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
    """Drain the journal that another process left, in order."""
    other = await Journal.open(directory, bytes_max=10**9, store="another")
    for number in range(COUNT):
        item = PushItem(queue=QUEUE, partition="adopted", payload=str(number).encode())
        id = uuid7()
        payload = push_payload([pack(uuid7(), f"left behind {number}", item)], doubt=True)
        await other.append([NewEntry(Backlog("push", "default", QUEUE, "adopted"), 1, payload, UUID(id))])
        tell(number, id)
    await other.close()
    Leftover.drop = lambda *_: die()  # type: ignore[method-assign]
    await journal.adopt()


async def main(url: str, directory: str, point: str) -> None:
    async with Broker.open(url, journal=directory) as broker:
        journal: Any = broker._engine.journal
        messages: Any = broker._engine.store.messages
        if point in ("sending", "stored"):
            messages.push = dying(messages.push, before=point == "sending", after_calls=COUNT)
            await push(broker, point)
        await broker._engine.flags.set(PUSHES_PAUSED, True)
        if point == "adopted":
            await adopt(journal, directory)
        if point in ("appending", "appended"):
            journal.append = dying(journal.append, before=point == "appending", after_calls=COUNT)
        await push(broker, point)
        operations: Any = broker._engine.store.operations
        if point in ("moving", "moved"):
            operations.enqueue = dying(operations.enqueue, before=point == "moving")
        elif point in ("applying", "applied"):
            operations.apply = dying(operations.apply, before=point == "applying")
        else:
            journal.remove = dying(journal.remove, before=False)
        await broker._engine.flags.set(PUSHES_PAUSED, False)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
