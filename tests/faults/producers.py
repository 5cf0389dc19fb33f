"""Producers that record their answers, and a check by SQL of what the store contains."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import asyncpg
import msgspec

# Imported here, because a broker imports them when it opens, on the event loop of the test.
import fairlane.store.journal.journal
import fairlane.store.postgres.store  # noqa: F401
from fairlane.broker.broker import Broker
from fairlane.errors import FairlaneError, OutcomeUnknown
from fairlane.model.operation import TIMEOUT_SECONDS

QUEUE = "orders"


class Producers:
    """Producers that each push numbers to their own partition, one after another, until stopped."""

    def __init__(self, broker: Broker, *, count: int, given_ids: bool) -> None:
        self._broker = broker
        self._given_ids = given_ids
        self._stopping = False
        self.accepted: dict[str, list[int]] = defaultdict(list)
        """Answers by partition, in order."""
        self.statuses: dict[str, int] = defaultdict(int)
        self.errors: list[FairlaneError] = []
        self._tasks = [asyncio.create_task(self._run(f"p{number}")) for number in range(count)]

    async def _run(self, partition: str) -> None:
        number = 0
        while not self._stopping:
            given = f"{partition}-{number}" if self._given_ids and number % 2 else None
            try:
                outcome = await self._broker.push(QUEUE, number, partition=partition, transaction_id=given)
            except FairlaneError as error:
                self.errors.append(error)
            else:
                self.statuses[outcome.status] += 1
                self.accepted[partition].append(number)
            number += 1
            await asyncio.sleep(0.002)

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


def check(producers: Producers, found: dict[str, list[int]]) -> None:
    """Check that accepted numbers are stored once and in order, and others only if their outcome is unknown."""
    unknown = any(isinstance(error, OutcomeUnknown) for error in producers.errors)
    for partition, accepted in producers.accepted.items():
        if unknown:
            assert [number for number in found[partition] if number in set(accepted)] == accepted
            assert found[partition] == sorted(set(found[partition]))
        else:
            assert found[partition] == accepted


async def stored(url: str) -> dict[str, list[int]]:
    """Return the contents of the database by partition and position, read without the broker."""
    connection = await asyncpg.connect(url)
    try:
        rows: list[Any] = await connection.fetch(
            'SELECT "partition", data FROM fairlane.messages WHERE queue = $1 ORDER BY "partition", position', QUEUE
        )
    finally:
        await connection.close()
    found: dict[str, list[int]] = defaultdict(list)
    for name, data in rows:
        found[name].append(msgspec.json.decode(data))
    return found


async def drained(broker: Broker, *, seconds: float = 60.0 + TIMEOUT_SECONDS) -> None:
    """Wait until the store has all that was accepted, out of the journal and out of the operation queue. What a killed
    broker had claimed is another's only when the claim has run out."""
    journal = broker._engine.journal
    assert journal is not None
    async with asyncio.timeout(seconds):
        router, backlog = broker._engine.write_router, broker._engine.open_operations
        while journal.state().entries or not router.health.up or backlog.depth:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
