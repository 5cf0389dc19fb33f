"""Row locks held by other sessions. A call leaves out the partitions that are locked, so that the others proceed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import asyncpg

from fairlane.errors import LaneLocked
from fairlane.model.ids import PartitionId
from fairlane.store.contract.values import LaneAck
from fairlane.store.postgres.connection import Database

_PROBES = 3
_PAUSE_SECONDS = 0.03
"""Pause between probes. A lane counts as locked only if several probes find it locked, because brief locks are normal.
"""
_TRIES = 3
_ALONE_MAX = 2

_FIND = "SELECT partition_id, group_id FROM fairlane.locked_lanes($1, $2)"


class Partitioned(Protocol):
    @property
    def partition(self) -> PartitionId: ...


Item = TypeVar("Item", bound=Partitioned)
Result = TypeVar("Result")
LockKey = tuple[PartitionId, int]
"""A partition, and the group whose cursor is locked; 0 for a push."""


class RowLocks:
    """Partitions and lanes that were found locked. Later calls probe them first instead of waiting for them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[LockKey] = set()

    async def run_unlocked(
        self, items: Sequence[Item], run: Callable[[list[Item]], Awaitable[list[Result]]], locked: Result
    ) -> list[Result]:
        """Run the items whose lanes are free, together. The others get the result `locked`, and are not applied."""
        out = await self._still_locked(map(_lock_key, items))
        for _ in range(_TRIES):
            free = [item for item in items if _lock_key(item) not in out] if out else list(items)
            try:
                results = await run(free) if free else []
            except LaneLocked:
                out |= await self._find([_lock_key(item) for item in free])
                continue
            if not out:
                return results
            left = iter(results)
            return [locked if _lock_key(item) in out else next(left) for item in items]
        return await self._one_by_one(items, out, run, locked)

    async def _one_by_one(
        self,
        items: Sequence[Item],
        out: set[LockKey],
        run: Callable[[list[Item]], Awaitable[list[Result]]],
        locked: Result,
    ) -> list[Result]:
        """Run the items one by one, for when no probe finds the lock that is held."""
        found: list[Result] = []
        failed = 0
        for item in items:
            result = locked
            if _lock_key(item) not in out and failed < _ALONE_MAX:
                try:
                    [result] = await run([item])
                except LaneLocked:
                    failed += 1
                    out.add(_lock_key(item))  # later items of the lane must not overtake it
            found.append(result)
        return found

    async def transact(
        self, items: Iterable[Partitioned], work: Callable[[asyncpg.Connection[Any]], Awaitable[Result]]
    ) -> Result:
        """Run a transaction that needs all of these lanes. Raises LaneLocked if one of them is locked."""
        keys = [_lock_key(item) for item in items]

        async def check() -> None:
            if locked := await self._still_locked(keys):
                raise LaneLocked(f"somebody else holds partition {next(iter(locked))[0]} for too long; try again")

        try:
            return await self._database.transact(work, check)
        except LaneLocked:
            await self._find(keys)
            raise

    async def partitions(self) -> set[PartitionId]:
        """Return the partitions that were found locked and still are."""
        return {partition for partition, _ in await self._still_locked(self._known)}

    async def find(self, items: Iterable[Partitioned]) -> set[PartitionId]:
        """Return the partitions of `items` that are locked, after a call failed."""
        return {partition for partition, _ in await self._find([_lock_key(item) for item in items])}

    async def _still_locked(self, keys: Iterable[LockKey]) -> set[LockKey]:
        if not self._known:
            return set()
        suspects = self._known.intersection(keys)
        locked = await self._probe(suspects)
        self._known -= suspects - locked
        return locked

    async def _find(self, keys: Iterable[LockKey]) -> set[LockKey]:
        locked = set(keys)
        for number in range(_PROBES):
            if number:
                await asyncio.sleep(_PAUSE_SECONDS)
            locked = await self._probe(locked)
            if not locked:
                break
        self._known |= locked
        return locked

    async def _probe(self, keys: set[LockKey]) -> set[LockKey]:
        """Return the lanes that another session holds now."""
        if not keys:
            return set()
        some = sorted(keys)
        columns = [partition.id for partition, _ in some], [group for _, group in some]
        try:
            rows = await self._database.write(_FIND, *columns)
        except LaneLocked:  # the whole table is locked
            return set(keys)
        return {(PartitionId.of(id), group) for id, group in rows}


def _lock_key(item: Partitioned) -> LockKey:
    return item.partition, item.group_id if isinstance(item, LaneAck) else 0
