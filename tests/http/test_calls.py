"""The number of function calls for a push, a pop and an ack: a guard against slow paths that needs no clock.

All calls by functions of the package are counted, from the bytes of a request to the bytes of its answer, in all
threads. CALLS has the expected numbers. If one changes for a good reason, update it there and give the reason."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fairlane
from fairlane.model.ids import uuid7
from tests.conformance.backends import Backend
from tests.http.wire import Wire, serving

PACKAGE = str(Path(fairlane.__file__).parent)
ROUNDS = 12
BATCH = 100
TOLERANCE = 0.15
LANES = "calls.lanes"
CALLS = {
    "sqlite": {
        "push 1": 235,
        "push 100": 467,
        "pop 100": 226,
        "ack 100": 209,
        "push 100 with ids to 4 lanes": 1117,
        "pop 100 of 4 lanes": 363,
        "ack 100 of 4 lanes": 383,
    },
    "postgres18": {
        "push 1": 300,
        "push 100": 527,
        "pop 100": 258,
        "ack 100": 263,
        "push 100 with ids to 4 lanes": 1233,
        "pop 100 of 4 lanes": 347,
        "ack 100 of 4 lanes": 425,
    },
}


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def hook(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(PACKAGE):
            self.calls += 1


@contextmanager
def counting() -> Iterator[Counter]:
    """Count calls in this thread, and in threads that start meanwhile."""
    counter = Counter()
    threading.setprofile(counter.hook)
    sys.setprofile(counter.hook)
    try:
        yield counter
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def fewest(counter: Counter, *steps: Callable[[], Awaitable[Any]]) -> list[int]:
    """Return the minimum of several rounds for each step, because background services add to some."""
    found = []
    for _ in range(ROUNDS):
        counts = []
        for step in steps:
            before = counter.calls
            await step()
            counts.append(counter.calls - before)
        found.append(counts)
    return [min(column) for column in zip(*found, strict=True)]


async def test_a_message_costs_as_many_calls_as_it_did(backend: Backend, request: pytest.FixtureRequest) -> None:
    await backend.make()
    with counting() as counter:
        async with serving(await backend.open(None)) as wire:
            found = await measured(wire, counter)
    recorded = CALLS[request.node.callspec.params["backend"]]
    assert found == {name: pytest.approx(count, rel=TOLERANCE) for name, count in recorded.items()}, found


async def measured(wire: Wire, counter: Counter) -> dict[str, int]:
    queue, other = "calls", "calls.batches"  # plain names, the usual case
    items = [{"queue": other, "partition": "lane", "payload": {"number": n}} for n in range(BATCH)]
    taken: list[dict[str, Any]] = []

    async def push() -> None:
        (await wire.post("/api/v1/push", body={"items": [{**items[0], "queue": queue}]})).ok(201)

    async def push_batch() -> None:
        (await wire.post("/api/v1/push", body={"items": items})).ok(201)

    async def pop() -> None:
        taken[:] = await wire.pop(other, batch=BATCH)
        assert len(taken) == BATCH

    async def ack() -> None:
        names = ("transactionId", "partitionId", "leaseId", "position")
        acks = [{**{name: one[name] for name in names}, "status": "completed"} for one in taken]
        (await wire.post("/api/v1/ack/batch", body={"acknowledgments": acks})).ok()

    async def push_of_a_client() -> None:
        own = [
            {**item, "queue": LANES, "partition": str(n % 4), "transactionId": uuid7()} for n, item in enumerate(items)
        ]
        (await wire.post("/api/v1/push", body={"items": own})).ok(201)

    async def pop_lanes() -> None:
        taken[:] = await wire.pop(LANES, batch=BATCH, partitions=4)
        assert len(taken) == BATCH

    steps = {"push 1": push, "push 100": push_batch, "pop 100": pop, "ack 100": ack}
    steps |= {
        "push 100 with ids to 4 lanes": push_of_a_client,
        "pop 100 of 4 lanes": pop_lanes,
        "ack 100 of 4 lanes": ack,
    }
    return dict(zip(steps, await fewest(counter, *steps.values()), strict=True))
