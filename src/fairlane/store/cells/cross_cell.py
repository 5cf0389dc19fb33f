"""Verbs that concern several cells at once, or must not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from fairlane.errors import (
    LeaseLost,
    OutcomeUnknown,
    StoreUnavailable,
    TransactionSpansCells,
    Unavailable,
    after_commit,
)
from fairlane.model.ids import PartitionId
from fairlane.model.operation import OperationCount
from fairlane.model.retention import RETENTION, Expired, RetentionStep
from fairlane.store.cells.directory import SQL
from fairlane.store.cells.link import CellLink
from fairlane.store.cells.router import Arguments, CellRouter, Named, Route, concatenated
from fairlane.store.contract.browse import StoredHead
from fairlane.store.contract.values import AckResult, Appended, LaneAck, PushResult, ScheduledSlice, Slice, Stored
from fairlane.store.contract.wakes import RepairedWakes
from fairlane.store.families.query import DatabaseTransaction
from fairlane.store.postgres import two_phases
from fairlane.store.postgres.two_phases import CellPart

LEAD_SECONDS = 60
"""Length of the lead of a cell's retention. The leader of the home leads in every cell."""


async def transact(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Run a transaction in the cells of its queues. Raises TransactionSpansCells if no server commits it in all."""
    acks, slices, *rest = args
    scheduled: Sequence[ScheduledSlice] = rest[0] if rest else ()
    pushed = [*slices, *(part.slice for part in scheduled)]
    cells = await _used(router, acks, pushed)
    if len(cells) > 1 and (links := await _in_one_cluster(router, cells)):
        return await _together(router, links, acks, slices, scheduled)
    return await router.at(await only_cell(router, acks, pushed), family, verb, *args, **named)


async def _in_one_cluster(router: CellRouter, cells: Iterable[int]) -> list[CellLink]:
    """Return the links to the cells if they are the home and schemas that Citus has beside it, else none."""
    links = [await router.link(cell) for cell in sorted(cells)]
    return links if all(link.cell == 0 or _beside(router.home, link) for link in links) else []


def _beside(home: CellLink, link: CellLink) -> bool:
    return getattr(link.store, "node", None) is not None and link.opened.url == home.opened.url


async def _together(
    router: CellRouter,
    links: Sequence[CellLink],
    acks: Sequence[LaneAck],
    slices: Sequence[Slice],
    scheduled: Sequence[ScheduledSlice],
) -> tuple[list[AckResult], list[PushResult]]:
    """Run a transaction in several cells of one Citus cluster, by the coordinator, which has the home."""
    router.home.check_up()
    places = [[await _place(router, links, item) for item in items] for items in (acks, slices, scheduled)]

    def part(link: CellLink) -> CellPart:
        link.check_up()
        found: list[list[Any]] = [
            [item for item, cell in zip(items, cells, strict=True) if cell == link.cell]
            for items, cells in zip((acks, slices, scheduled), places, strict=True)
        ]
        return CellPart(link.cell, link.opened, *found)

    parts = {link.cell: part(link) for link in links}
    try:
        await two_phases.transact(router.home.opened.database, list(parts.values()))
    except (StoreUnavailable, OutcomeUnknown):
        for link in links:
            link.check_soon()
        raise
    acked = {cell: iter(part.acked) for cell, part in parts.items()}
    stored = {cell: iter(part.pushed) for cell, part in parts.items()}
    return [next(acked[cell]) for cell in places[0]], [next(stored[cell]) for cell in (*places[1], *places[2])]


async def _place(router: CellRouter, links: Sequence[CellLink], item: Any) -> int:
    """Return the cell of a part of a transaction. One in an unknown cell is refused by the first."""
    cell = await router.locate(item)
    return cell if any(link.cell == cell for link in links) else links[0].cell


def ack_and_pop(ack: Route) -> Route:
    """Route to the cell of the queue. Acks of unknown lanes are routed by `ack`, like other acks."""

    async def route(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        acks, call = args
        acked, popped = await router.at(await router.locate(call), family, verb, acks, call)
        missing = [index for index, one in enumerate(acked) if one.state in ("lost", "gone")]
        with after_commit():  # the pop was applied
            again = await ack(router, family, "ack", ([acks[index] for index in missing],), named) if missing else ()
        for index, one in zip(missing, again, strict=True):
            acked[index] = one
        return acked, popped

    return route


async def only_cell(
    router: CellRouter, acks: Sequence[LaneAck], slices: Sequence[Slice], queue_ids: Sequence[int] = ()
) -> int:
    """Return the cell of a transaction. Raises TransactionSpansCells if there are several."""
    cells = await _used(router, acks, slices, queue_ids)
    if len(cells) > 1:
        where = [f"{await _names(router, cell, *ids)} in cell {cell}" for cell, ids in sorted(cells.items())]
        raise TransactionSpansCells(
            f"nothing was done: the transaction uses {', and '.join(where)}; create one queue beside the other "
            "(`cell: same-as ...`)"
        )
    return next(iter(cells), 0)


async def _used(
    router: CellRouter, acks: Sequence[LaneAck], slices: Sequence[Slice], queue_ids: Sequence[int] = ()
) -> dict[int, tuple[set[int], set[int]]]:
    """Return the ids of queues and of partitions that a transaction uses, by cell.

    An ack that names an unknown cell counts for none. The cell of the others refuses it.
    """
    cells = await _cells(router, acks, slices, queue_ids)
    if len(cells) > 1:
        with suppress(Unavailable):  # the directory in memory may be older than a move
            await router.refresh()
        cells = await _cells(router, acks, slices, queue_ids)
    return cells


async def _cells(
    router: CellRouter, acks: Sequence[LaneAck], slices: Sequence[Slice], queue_ids: Sequence[int]
) -> dict[int, tuple[set[int], set[int]]]:
    """Return the ids of queues and of partitions that a transaction uses in each cell."""
    cells: dict[int, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for part in slices:
        cells[await router.locate(part)][0].add(part.queue_id)
    for queue_id in queue_ids:
        cells[await router.locate(queue_id)][0].add(queue_id)
    for ack in acks:
        if await router.knows(cell := await router.locate(ack)):
            cells[cell][1].add(ack.partition.id)
    return cells


async def _names(router: CellRouter, cell: int, queue_ids: set[int], partition_ids: set[int]) -> str:
    """Return the names of queues for an error."""
    try:
        database = (await router.link(cell)).opened.database
        rows = await database.read(SQL["named"], list(queue_ids), list(partition_ids))
    except Unavailable:
        rows = []
    return ", ".join(f"queue {name!r:.80}" for (name,) in rows) or "a queue"


async def commit(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Commit a step of a schedule or a source, which is in the home, with messages for one cell.

    Messages for another cell are stored once the step is made, before it is committed. After a crash in between, the
    step is made again. Their ids are then the same, so a queue with `dedup_seconds` stores them once.
    """
    step, acks, slices = args
    cell = await only_cell(router, acks, slices)
    if cell == 0:
        return await router.home.call(family, verb, args, named)
    results: tuple[Any, list[PushResult]] = [], []
    unique = named.get("unique", ())

    async def store(transaction: DatabaseTransaction, pushed: Sequence[PushResult]) -> None:
        nonlocal results
        if unique:
            results = await router.at(cell, "unique_keys", "commit", unique, acks, slices)
        else:
            results = await router.at(cell, "messages", "transact", acks, slices)
        if not all(isinstance(result, Stored) for result in results[1]):
            raise _NotStored

    with suppress(_NotStored):
        await router.home.call(family, verb, (step, [], []), {"also": store})
    return results


class _NotStored(Exception):
    """The rollback of a step whose messages were refused."""


def operation_counts(answers: list[list[OperationCount]]) -> list[OperationCount]:
    """Add counts of the same type, priority and status."""
    counts: dict[tuple[str, int, str], list[OperationCount]] = defaultdict(list)
    for one in concatenated(answers):
        counts[one.type, one.priority, one.status].append(one)
    return [some[0] if len(some) == 1 else _added(some) for some in counts.values()]


def _added(some: list[OperationCount]) -> OperationCount:
    count = sum(one.count for one in some)
    seconds = [one.latency_seconds * one.count for one in some if one.latency_seconds is not None]
    return OperationCount(
        some[0].type,
        some[0].priority,
        some[0].status,
        count,
        min(one.oldest for one in some),
        max(one.newest for one in some),
        sum(seconds) / count if seconds else None,
    )


def appended(answers: list[Appended]) -> Appended:
    """Merge numbers of appended messages. The count is the largest one, which the caller compares with its limit."""
    queues = {queue_id: count for one in answers for queue_id, count in one.queues.items()}
    return Appended(queues, max(one.count for one in answers))


async def newest(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> list[StoredHead]:
    """Return heads in the order of the partitions that were asked."""
    heads: list[StoredHead] = concatenated(await router.read_split(family, verb, args[0], args[1:], named))
    order = {upto.partition: index for index, upto in enumerate(args[0])}
    return sorted(heads, key=lambda head: order[head.at.partition])


async def statistics_of_queues(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Return statistics in the order of the queues that were asked."""
    found = concatenated(await router.read_split(family, verb, args[0], args[1:], named))
    order = {queue_id: index for index, queue_id in enumerate(args[0])}
    return sorted(found, key=lambda one: order[one.queue_id])


async def stamp(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Return a value that changes with the queues, and when a cell goes down or is back."""
    answers = await router.read(family, verb, args, named)
    return tuple(answers), sum(link.turns for link in router.links.values())


async def repair_wakes(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> RepairedWakes:
    """Walk over the lanes of one cell after the other. A cell that is unavailable is left out.

    The end of a step is the cell, and as its number the id of a partition there, which may name another cell.
    """
    [after] = args
    cell = after.cell if after is not None else 0
    link = router.links.get(cell)
    begin = PartitionId.of(after.number) if after is not None and after.number else None
    found = RepairedWakes({}, None)
    if link is not None:
        try:
            found = await link.call(family, verb, (begin,), named)
        except Unavailable:
            if cell == 0:
                raise
    if found.after is None and (rest := [one for one in sorted(router.links) if one > cell]):
        return RepairedWakes(found.lanes, PartitionId(rest[0], 0))
    return RepairedWakes(found.lanes, PartitionId(cell, found.after.id) if found.after is not None else None)


async def retention_step(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> RetentionStep:
    """Run a retention step in every cell. The leader of the home also leads in the others, with the same token."""
    [token] = args
    step: RetentionStep = await router.home.call(family, verb, args, named)
    expired: list[Expired] = list(step.expired)
    more = step.more
    for _, link in sorted(router.links.items())[1:]:
        try:
            await link.call("leadership", "take", (RETENTION, token), {"seconds": LEAD_SECONDS})
            found: RetentionStep = await link.call(family, verb, args, named)
        except (Unavailable, LeaseLost):
            continue
        expired += found.expired
        more = more or found.more
    return RetentionStep(expired, more)
