"""The stored depth of a queue is the number of messages that some group has not finished, whatever happened to them."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from fairlane.errors import FairlaneError
from fairlane.model.group import Seek
from fairlane.model.ids import cell_of
from fairlane.model.names import QUEUE_MODE
from fairlane.store.cells.store import CellsStore
from tests.conformance.harness import Harness

STEPS = 60
GROUPS = (QUEUE_MODE, "audit")


class Walk:
    """Random verbs on the messages of one queue, among them those that finish messages ahead of others."""

    def __init__(self, harness: Harness, queue: str, seed: int) -> None:
        self.harness, self.broker, self.queue = harness, harness.broker, queue
        self.random = random.Random(seed)
        self.ids: list[tuple[str, str, str]] = []
        self.held: list[Any] = []

    async def step(self) -> str:
        """Take a step, and return its verb. The store may refuse it."""
        verbs = [self.push, self.push, self.pop, self.pop, self.ack, self.ack, self.end_lease, self.seek, self.take_out]
        verb = self.random.choice(verbs)
        with contextlib.suppress(FairlaneError):
            await verb()
        return verb.__name__

    async def push(self) -> None:
        partition, id = self.random.choice("ab"), f"m{len(self.ids)}"
        outcome = await self.broker.push(self.queue, 1, partition=partition, transaction_id=id)
        self.ids.append((str(outcome.partition), partition, id))

    async def pop(self) -> None:
        group, batch = self.random.choice(GROUPS), self.random.randint(1, 4)
        if found := await self.broker.pop(self.queue, group=group, batch=batch, partitions=2):
            self.held.append(found)

    async def ack(self) -> None:
        batch = self.held.pop(self.random.randrange(len(self.held))) if self.held else []
        some = self.random.sample(list(batch), self.random.randint(0, len(batch)))
        status: Any = self.random.choice(["completed", "completed", "failed", "dlq"])
        await self.broker.ack(some, status, error="no", check=False) if some else None

    async def end_lease(self) -> None:
        if self.held and self.random.random() < 0.5:
            await self.broker.release(self.held.pop())
        else:
            self.harness.clock.advance(11)

    async def seek(self) -> None:
        target = Seek(self.random.choice(["beginning", "end"]))
        await self.broker.groups.seek(self.queue, self.random.choice(GROUPS), target)

    async def take_out(self) -> None:
        if not self.ids:
            return
        partition_id, partition, id = self.random.choice(self.ids)
        match self.random.randrange(4):
            case 0:
                await self.broker.cancel(self.queue, id, partition=partition)
            case 1:
                await self.broker.cancel(self.queue, id, partition=partition, group=self.random.choice(GROUPS))
            case 2:
                await self.broker.messages.delete(partition_id, id)
            case _:
                await self.broker.messages.dead_letter(partition_id, id)


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
@pytest.mark.parametrize("seed", [1, 723562077])
async def test_depth_is_what_a_recount_finds_after_every_verb(harness: Harness, ordering: str, seed: int) -> None:
    queue = harness.name("jobs")
    await harness.broker.queues.configure(queue, ordering=ordering, max_size=1000, retry_limit=1, lease_seconds=10)
    id = int((await harness.broker.queues.show(queue)).id)
    walk, taken = Walk(harness, queue, seed), list[str]()
    for _ in range(STEPS):
        taken.append(await walk.step())
        [[depth]] = await harness.backend.sql("SELECT q.depth FROM fairlane.queues q WHERE q.id = $1", id)
        assert depth == await counted(harness, id), taken


async def counted(harness: Harness, queue_id: int) -> int:
    """Return the number of unfinished messages of a queue, counted in the lanes of its cell."""
    store: Any = harness.store
    if isinstance(store, CellsStore):
        store = (await store.router.link(cell_of(queue_id))).opened
    return int(await store._runner.reads.count_unfinished(queue_id))
