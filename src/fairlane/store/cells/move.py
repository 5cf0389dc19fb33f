"""The move of a queue to another cell, while producers and consumers use it.

The invariant: at most one cell has the row of the queue in `queues`, and nobody can push, pop or ack without it. The
steps are commits of single cells, in this order:

1. The home records the move with a `term`. The source and the target record the term of their mover.
2. The target gets copies of the rows, which no broker acts on (`move_copy.py`).
3. The source locks the queue, so that calls wait. The home notes that the queue and its groups are on their way, and
   the target gets what is left.
4. The source commits that it has no such queue. This decides the move: before it the source has everything, after it
   the target has.
5. The target adds the row of the queue. From now on it serves the queue.
6. The home directs brokers to the target and forgets the move. The source deletes the rows that are left.

A process may end between any two steps. Another one takes the next term, which ends the rights of the first in both
cells, and continues where the committed rows say. Before step 4 it can also undo the move. A broker with an old
directory finds no queue in the source, and the source refuses to create one of this name. So it asks the home again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from fairlane.errors import Conflict, InvalidRequest, LaneLocked, NotFound, OutcomeUnknown
from fairlane.model.tenant import Quotas
from fairlane.store.cells.cluster import open_cell
from fairlane.store.cells.directory import Cell, Directory
from fairlane.store.cells.move_copy import SQL, Progress, QueueCopy
from fairlane.store.families.queues import CELLS
from fairlane.store.postgres.mover_connection import MoverConnection, connect_mover
from fairlane.store.postgres.store import PostgresStore

ROUNDS_MAX = 20
"""Copies before the switch. Each has less to copy, unless producers are faster than the copy."""
FEW = 2000
"""Messages that the switch may have to copy."""
LOCK_TRIES = 60
"""Attempts to lock the queue. Consumers continue between them."""
LOCK_PAUSE = 0.25


class QueueMove(msgspec.Struct, frozen=True):
    """A move of a queue, as the home recorded it."""

    term: int
    queue_id: int
    tenant: str
    queue: str
    source: int
    target: int
    copied: int
    total: int
    began_at: int


class MoveResult(msgspec.Struct, frozen=True):
    """The result of a move, with the queues that may belong to the moved one."""

    move: QueueMove
    beside: list[str]
    """Queues that were created beside it."""
    letters_from: list[str]
    """Queues whose dead letters are forwarded to it."""
    letters_to: str
    """The queue of its own dead letters, if it is in another cell."""


async def moves(home: PostgresStore) -> list[QueueMove]:
    """Return the moves in progress, including interrupted ones."""
    return [QueueMove(*row) for row in await home.database.read(SQL["all"])]


async def _nothing(_step: str) -> None: ...


async def _silent(_copied: int, _total: int) -> None: ...


class QueueMover:
    """One process that moves queues. `reached` is called after each step."""

    def __init__(
        self, home: PostgresStore, *, reached: Callable[[str], Awaitable[None]] = _nothing, **options: Any
    ) -> None:
        self._home = home
        self._reached = reached
        self._options = options

    async def move(self, tenant: str, queue: str, to: int, progress: Progress = _silent) -> MoveResult:
        """Move a queue to the cell `to`, or continue its move.

        Raises Conflict if another process moves it now.
        """
        async with self._alone(tenant, queue), AsyncExitStack() as stack:
            cells = await self._cells()
            move = await self._begin(tenant, queue, to, cells)
            await self._reached("noted")
            source, target = [await self._open(stack, cells, cell) for cell in (move.source, move.target)]
            copy = QueueCopy(source.database, target.database, move.queue_id, move.term)
            if await source.take(move):
                await self._reached("source taken")
                await self._prepare(target, move)
                await self._reached("target taken")
                await self._copy(copy, move, progress)
                await self._switch(copy, source, move)
            if not await source.sent(move):
                await self._undo(move, source, target)
                raise NotFound(f"queue {queue!r:.80} was deleted while it was moved")
            if not await target.take(move):
                await self._arrive(copy, target, move)
            await self._direct(move)
            await self._reached("directed")
            await self._clean(source, target, move)
            return await self._result(move, source, target)

    async def abort(self, tenant: str, queue: str) -> QueueMove:
        """Undo a move that was interrupted. Raises Conflict if the queue has left its cell."""
        async with self._alone(tenant, queue), AsyncExitStack() as stack:
            cells = await self._cells()
            move = await self._known(tenant, queue)
            if move is None:
                raise NotFound(f"queue {queue!r:.80} is not being moved")
            move = await self._take_over(move)
            source = await self._open(stack, cells, move.source)
            if not await source.take(move):
                raise Conflict(
                    f"queue {queue!r:.80} has left cell {move.source}: repeat the command without --abort to finish"
                )
            await self._undo(move, source, await self._open(stack, cells, move.target))
            return move

    async def _undo(self, move: QueueMove, source: MoveSide, target: MoveSide) -> None:
        """Forget a move before the queue has left its cell, with the copy."""
        await target.take(move)
        await target.remove_copy(move)
        await self._recall(move)
        for side in (target, source):
            await side.database.fetch(SQL["let_go"], move.queue_id, move.term)
        await self._home.database.write(SQL["end"], move.queue_id, move.term)

    async def _recall(self, move: QueueMove) -> None:
        """Record that the queue is no longer in transit."""
        await self._home.database.write(SQL["recall"], move.queue_id, move.source)
        await self._home.database.write(SQL["forget_native"], move.queue_id)

    # The start.

    @asynccontextmanager
    async def _alone(self, tenant: str, queue: str) -> AsyncIterator[None]:
        """Refuse a second mover of the queue while this one lives."""
        async with connect_mover(self._home.url) as database, database.transaction():
            await database.fetch(SQL["stay"])
            [[alone]] = await database.fetch(SQL["lock"], f"{tenant}/{queue}")
            if not alone:
                raise Conflict(f"another process is moving queue {queue!r:.80}; wait for it")
            yield

    async def _cells(self) -> dict[int, Cell]:
        return {cell.number: cell for cell in await Directory(self._home).load()}

    async def _known(self, tenant: str, queue: str) -> QueueMove | None:
        rows = await self._home.database.read(SQL["named"], tenant, queue)
        return QueueMove(*rows[0]) if rows else None

    async def _begin(self, tenant: str, queue: str, to: int, cells: dict[int, Cell]) -> QueueMove:
        """Return the noted move of this mover. Raises a clear error, and notes nothing, if it is not possible."""
        if to not in cells:
            known = ", ".join(map(str, sorted(cells))) or "0 alone"
            raise InvalidRequest(f"there is no cell {to}; known are {known} (`fairlane cluster status`)")
        if (move := await self._known(tenant, queue)) is not None:
            if move.target != to:
                raise Conflict(
                    f"queue {queue!r:.80} is being moved to cell {move.target}: name that cell to finish, or --abort"
                )
            return await self._take_over(move)
        if cells[to].state != "open":
            raise Conflict(f"cell {to} is {cells[to].state} and takes no new queues; name another one")
        source = (await Directory(self._home).read(tenant, [queue])).get(queue, 0)
        if source not in cells:
            raise NotFound(f"there is no queue {queue!r:.80}")
        async with await open_cell(self._home, cells[source], connections=2, **self._options) as store:
            found = await store.queues.get(tenant, queue)
            if found is None:
                raise NotFound(f"there is no queue {queue!r:.80}")
            if source == to:
                raise InvalidRequest(f"queue {queue!r:.80} is in cell {to} already")
            await self._check_alone(store, tenant, queue, found.id)
        rows = await self._home.database.write(SQL["begin"], found.id, tenant, queue, source, to)
        if not rows:
            raise Conflict(f"cell {to} was closed or removed just now; name another one")
        return QueueMove(*rows[0])

    async def _check_alone(self, store: PostgresStore, tenant: str, queue: str, queue_id: int) -> None:
        """Raise Conflict if the queue is tied to others by more than its options."""
        [[partners]] = await store.database.read(SQL["partners"], queue_id)
        if partners:
            raise _tied(queue, partners)
        if streams := await store.database.read(SQL["streams"], tenant, queue):
            raise Conflict(f"stream {streams[0][0]!r:.80} uses queue {queue!r:.80}, and streams stay in the home")

    async def _take_over(self, move: QueueMove) -> QueueMove:
        rows = await self._home.database.write(SQL["take_over"], move.queue_id, move.term)
        if not rows:
            raise Conflict(f"another process is moving queue {move.queue!r:.80}; wait for it")
        return QueueMove(*rows[0])

    async def _open(self, stack: AsyncExitStack, cells: dict[int, Cell], number: int) -> MoveSide:
        if (cell := cells.get(number)) is None:
            raise NotFound(f"there is no cell {number} any more")
        store = await stack.enter_async_context(await open_cell(self._home, cell, connections=2, **self._options))
        database = await stack.enter_async_context(connect_mover(cell.url or self._home.url, cell.schema))
        return MoveSide(number, store, database)

    # The copy and the switch.

    async def _prepare(self, target: MoveSide, move: QueueMove) -> None:
        """Prepare the target: remove rows of an earlier stay, and check that no queue has the name."""
        if await target.take(move):
            raise Conflict(f"queue {move.queue!r:.80} is in cell {move.target} already")
        if await target.store.tenants.get(move.tenant) is None:
            await target.store.tenants.make(move.tenant, Quotas())
        await target.reserve_name(move)
        await target.finish_purge(move)

    async def _copy(self, copy: QueueCopy, move: QueueMove, progress: Progress) -> None:
        async def report(copied: int, total: int) -> None:
            await progress(copied, total)
            rows = await self._home.database.write(SQL["advance"], move.queue_id, move.term, copied, total)
            if not rows:
                raise Conflict("another process took over this move; nothing more was done here")

        for _ in range(ROUNDS_MAX):
            if await copy.copy_early(report) < FEW:
                break
            await self._reached("copied")

    async def _switch(self, copy: QueueCopy, source: MoveSide, move: QueueMove) -> None:
        for left in reversed(range(LOCK_TRIES)):
            try:
                await self._depart(copy, source, move)
                return
            except LaneLocked as error:
                if not left:
                    raise LaneLocked(
                        f"a long transaction holds queue {move.queue!r:.80}: end it and repeat the command ({error})"
                    ) from error
            await asyncio.sleep(LOCK_PAUSE)
            await copy.copy_early(_silent)

    async def _depart(self, copy: QueueCopy, source: MoveSide, move: QueueMove) -> None:
        """Commit the rest in the target, then that the source has no such queue."""
        announced = False
        try:
            async with source.database.transaction():
                await source.database.fetch(SQL["hold"], move.queue_id, move.term)
                await source.database.fetch(SQL["lock_queue"], move.queue_id)
                await self._reached("locked")
                if not await source.database.fetch(SQL["exists"], move.queue_id):
                    return  # it was deleted
                if partners := (await source.database.fetch(SQL["partners"], move.queue_id))[0][0]:
                    raise _tied(move.queue, partners)
                [[groups]] = await source.database.fetch(SQL["groups"], move.queue_id)
                announced = True
                await self._home.database.write(SQL["announce"], move.queue_id, groups, move.target)
                await self._reached("announced")
                async with copy.writing():
                    await copy.copy_rest(move.tenant, move.queue, move.target)
                await self._reached("delivered")
                await source.database.fetch(SQL["depart"], move.queue_id, move.target)
        except OutcomeUnknown:
            raise  # it may have left: the next mover finds out
        except BaseException:
            if announced:
                await self._recall(move)
            raise
        await self._reached("departed")

    async def _arrive(self, copy: QueueCopy, target: MoveSide, move: QueueMove) -> None:
        async with copy.writing():
            await copy.reveal()
            await target.database.fetch(SQL["unplace"], move.tenant, move.queue)
            await target.database.fetch(SQL["let_go"], move.queue_id, move.term)
            await target.database.fetch(SQL["note"], move.queue_id)
        await self._reached("arrived")

    # The end.

    async def _direct(self, move: QueueMove) -> None:
        """Direct brokers to the target."""

        async def work(connection: Any) -> None:
            if not await connection.fetch(SQL["hold_home"], move.queue_id, move.term):
                return
            if move.target:
                await connection.execute(SQL["place"], move.tenant, move.queue, move.target)
            else:
                await connection.execute(SQL["unplace"], move.tenant, move.queue)
            await connection.execute(SQL["direct"], move.queue_id)
            await connection.execute(SQL["forget_native"], move.queue_id)
            await connection.execute(SQL["note"], CELLS)

        await self._home.database.transact(work)

    async def _clean(self, source: MoveSide, target: MoveSide, move: QueueMove) -> None:
        """Delete what is left in the source, and forget the move."""
        await source.database.fetch(SQL["note"], move.queue_id)
        for side in (source, target):
            await side.database.fetch(SQL["let_go"], move.queue_id, move.term)
        await source.finish_purge(move)
        await self._reached("cleaned")
        await self._home.database.write(SQL["end"], move.queue_id, move.term)

    async def _result(self, move: QueueMove, source: MoveSide, target: MoveSide) -> MoveResult:
        rows = await source.database.fetch(SQL["beside"], move.tenant, move.queue)
        queue = await target.store.queues.get(move.tenant, move.queue)
        letters = queue.options.dead_letter_queue if queue is not None else ""
        there = isinstance(letters, str) and letters and await target.store.queues.get(move.tenant, letters) is None
        return MoveResult(
            move,
            [name for name, of_letters in rows if not of_letters],
            [name for name, of_letters in rows if of_letters],
            str(letters) if there else "",
        )


class MoveSide:
    """The source or the target of a move."""

    def __init__(self, cell: int, store: PostgresStore, database: MoverConnection) -> None:
        self.cell = cell
        self.store = store
        self.database = database

    async def take(self, move: QueueMove) -> bool:
        """Become the mover in this cell. Returns True if the cell has the queue."""
        async with self.database.transaction():
            [[here]] = await self.database.fetch(SQL["take"], move.queue_id, move.term)
            return bool(here)

    async def sent(self, move: QueueMove) -> bool:
        """Return True if the queue has left this cell for its target."""
        return bool(await self.database.fetch(SQL["sent"], move.tenant, move.queue, move.queue_id, move.target))

    async def reserve_name(self, move: QueueMove) -> None:
        """Reserve the name of the queue, so that nobody can create it here."""
        async with self.database.transaction():
            await self.database.fetch(SQL["hold"], move.queue_id, move.term)
            await self.database.fetch(SQL["place"], move.tenant, move.queue, move.source)

    async def remove_copy(self, move: QueueMove) -> None:
        """Delete the rows of a queue that did not arrive. The home keeps its row of the directory."""
        async with self.database.transaction():
            await self.database.fetch(SQL["hold"], move.queue_id, move.term)
            if await self.database.fetch(SQL["exists"], move.queue_id):
                return
            if self.cell:
                await self.database.fetch(SQL["unplace"], move.tenant, move.queue)
            await self.database.fetch(SQL["forget_copy"], move.queue_id)
            await self.database.fetch(SQL["purge_copy"], move.queue_id)
        await self.finish_purge(move)

    async def finish_purge(self, move: QueueMove) -> None:
        """Delete the rows of a queue that has left this cell. Nothing else purges them."""
        while True:
            async with self.database.transaction():
                [[more]] = await self.database.fetch(SQL["purge"], move.queue_id)
                if not more:
                    await self.database.fetch(SQL["end_purge"], move.queue_id)
                    return


def _tied(queue: str, partners: list[str]) -> Conflict:
    return Conflict(
        f"queue {queue!r:.80} shares an open fan-in with {', '.join(map(repr, partners))}; move it when that has ended"
    )
