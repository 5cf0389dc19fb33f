"""Moves staged messages from the home to queues in several cells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from fairlane.errors import OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import PartitionId
from fairlane.store.cells.router import Arguments, CellRouter, Named, id_named
from fairlane.store.contract.values import (
    Added,
    Duplicates,
    Gone,
    PartitionLocked,
    PushResult,
    ScheduledSlice,
    Slice,
)
from fairlane.store.families.staged import Move, StagedMessage

Part = TypeVar("Part", Slice, ScheduledSlice)


async def move(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Move staged messages in a transaction of the home."""
    work: Callable[[Move], Awaitable[Collection[StagedMessage]]]
    work, *rest = args

    async def across_cells(move: Move) -> Collection[StagedMessage]:
        return await work(CellMove(router, move))

    return await router.home.call(family, verb, (across_cells, *rest), named)


class CellMove:
    """A transaction of the home that moves staged messages, also into queues of other cells.

    Those are stored before it commits. After a crash in between they are moved again. Every id is therefore looked up
    in those queues, so that `dedup_seconds` lets them be stored once.
    """

    def __init__(self, router: CellRouter, move: Move) -> None:
        self.messages = move.messages
        self._router = router
        self._move = move

    async def lock(self, slices: Sequence[Slice]) -> None:
        await self._move.lock([part for part in slices if self._cell(part) == 0])

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]:
        checked = [part if self._cell(part) == 0 else _checked(part) for part in slices]
        return await self._split(checked, self._move.push, "messages", "push")

    async def schedule(self, parts: Sequence[ScheduledSlice]) -> list[Added | Duplicates | Gone | PartitionLocked]:
        checked = [part if self._cell(part) == 0 else replace(part, slice=_checked(part.slice)) for part in parts]
        return await self._split(checked, self._move.schedule, "scheduled", "add")

    async def _split(
        self, parts: Sequence[Part], here: Callable[[list[Part]], Awaitable[list[Any]]], family: str, verb: str
    ) -> list[Any]:
        """Store parts in their cells. Parts for a cell that is unavailable are reported as locked, and wait."""
        results: dict[PartitionId, Any] = {}
        for cell in sorted(set(map(self._cell, parts))):
            some = [part for part in parts if self._cell(part) == cell]
            try:
                found = await (here(some) if cell == 0 else self._router.at(cell, family, verb, some))
            except (StoreUnavailable, OutcomeUnknown):
                if cell == 0:
                    raise
                found = [PartitionLocked()] * len(some)
            results |= {part.partition: result for part, result in zip(some, found, strict=True)}
        return [results[part.partition] for part in parts]

    async def refuse(self, queue_id: int, partition: PartitionId, position: int, error: str) -> None:
        cell = self._router.cell(queue_id)
        if cell == 0:
            await self._move.refuse(queue_id, partition, position, error)
            return
        for group in await self._router.at(cell, "groups", "all", queue_id):
            await self._router.at(cell, "browse", "dead_letter", partition, group.id, position, error)

    def _cell(self, part: Slice | ScheduledSlice) -> int:
        return self._router.cell(id_named(part))


def _checked(part: Slice) -> Slice:
    """Return a slice whose ids are all looked up, as after an unknown outcome."""
    return replace(part, given=[True] * len(part.given))
