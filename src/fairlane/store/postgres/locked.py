"""Locked partitions, whose rows somebody else holds: they are left out of a call, so that those which travel with them
go on."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import asyncpg

from fairlane.errors import LaneLocked
from fairlane.model.ids import PartitionId
from fairlane.store.contract.values import LaneAck
from fairlane.store.postgres.connection import Database

_LOOKS = 3
_PAUSE_SECONDS = 0.03
"""A lane is locked that is so at each of several looks: others hold it for a moment all the time."""
_TRIES = 3
_ALONE_MAX = 2

_FIND = "SELECT partition_id, group_id FROM fairlane.locked($1, $2, $3)"


class Partitioned(Protocol):
    @property
    def partition(self) -> PartitionId: ...


Item = TypeVar("Item", bound=Partitioned)
Result = TypeVar("Result")
LockKey = tuple[PartitionId, int]
"""A partition, and the group whose cursor is needed; 0 for a push."""


class LockedRows:
    """Partitions and lanes that were found locked. Nobody waits for these again: they are looked at first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[LockKey] = set()

    async def around(
        self, items: Sequence[Item], run: Callable[[list[Item]], Awaitable[list[Result]]], locked: Result
    ) -> list[Result]:
        """Run the items whose lanes can be had, together; the result of the others is `locked`, and nothing of them was
        applied."""
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
        """When something is held that no look finds."""
        found: list[Result] = []
        failed = 0
        for item in items:
            result = locked
            if _lock_key(item) not in out and failed < _ALONE_MAX:
                try:
                    [result] = await run([item])
                except LaneLocked:
                    failed += 1
                    out.add(_lock_key(item))  # what comes after it in its lane does not overtake it
            found.append(result)
        return found

    async def transact(
        self, items: Iterable[Partitioned], work: Callable[[asyncpg.Connection[Any]], Awaitable[Result]]
    ) -> Result:
        """Run a transaction that needs all of these lanes. LaneLocked if one cannot be had, at once if it is known."""
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
        """Those that are known to be locked, and still are."""
        return {partition for partition, _ in await self._still_locked(self._known)}

    async def find(self, items: Iterable[Partitioned]) -> set[PartitionId]:
        """Look which of these made a call fail."""
        return {partition for partition, _ in await self._find([_lock_key(item) for item in items])}

    async def _still_locked(self, keys: Iterable[LockKey]) -> set[LockKey]:
        if not self._known:
            return set()
        suspects = self._known.intersection(keys)
        locked = await self._look(suspects)
        self._known -= suspects - locked
        return locked

    async def _find(self, keys: Iterable[LockKey]) -> set[LockKey]:
        locked = set(keys)
        for number in range(_LOOKS):
            if number:
                await asyncio.sleep(_PAUSE_SECONDS)
            locked = await self._look(locked)
            if not locked:
                break
        self._known |= locked
        return locked

    async def _look(self, keys: set[LockKey]) -> set[LockKey]:
        """Those of the lanes that somebody holds now."""
        by_shard: dict[int, list[LockKey]] = defaultdict(list)
        for key in sorted(keys):
            by_shard[key[0].shard].append(key)
        found: set[LockKey] = set()
        for shard, some in sorted(by_shard.items()):
            try:
                rows = await self._database.write(
                    _FIND, shard, [partition.id for partition, _ in some], [group for _, group in some]
                )
            except LaneLocked:  # the whole table is
                found.update(some)
            else:
                found.update((PartitionId(shard, id), group) for id, group in rows)
        return found


def _lock_key(item: Partitioned) -> LockKey:
    return item.partition, item.group_id if isinstance(item, LaneAck) else 0
