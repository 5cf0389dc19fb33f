"""`fairlane cluster`: the cells of a store, which are PostgreSQL databases that share its queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import astuple

from fairlane.cli.commands.serve import given_settings, settings_options
from fairlane.cli.toolkit.command import AsJson, CommandGroup, Output, print_output
from fairlane.cli.toolkit.parameters import arg, opt, parameter
from fairlane.errors import InvalidRequest
from fairlane.model.ids import CELLS_MAX
from fairlane.model.names import DEFAULT_TENANT

if TYPE_CHECKING:
    from fairlane.store.postgres.store import PostgresStore

app = CommandGroup("cluster")

_SETTINGS = ("store", "listen_url", "statement_cache", "allow_unsafe")
_CELL = parameter("cell", Annotated[int, arg("CELL", "Number of the cell.")])


def _with_home(
    run: Callable[[PostgresStore, dict[str, Any]], Awaitable[Output]], config: Path | None, json: bool, options: Any
) -> None:
    """Open the home of the store, and print what `run` returns."""
    import asyncio

    settings = given_settings(options, config)
    if not settings.store.startswith(("postgresql://", "postgres://")):
        raise InvalidRequest(f"only a PostgreSQL store can have several cells, not {settings.store!r:.80}; set --store")

    async def work() -> Output:
        from fairlane.store.postgres.store import PostgresStore

        given: dict[str, Any] = {"statement_cache": settings.statement_cache, "allow_unsafe": settings.allow_unsafe}
        async with await PostgresStore.open(settings.store, listen_url=settings.listen_url, **given) as home:
            return await run(home, given)

    print_output(asyncio.run(work()), json)


def add(url: str | None, cells: int | None, config: Path | None, json: bool, **options: Any) -> None:
    """Make an empty PostgreSQL database a cell, which gets some of the new queues. Citus makes several with --cells.

    Brokers notice it by themselves. A cell holds whole queues; push, pop and ack of a queue go to its cell.

        fairlane cluster add --store postgresql://pg1/queue --url postgresql://pg2/queue
        fairlane cluster add --store postgresql://coordinator/queue --cells 8
    """
    if (url is None) == (cells is None):
        raise InvalidRequest("name the database of the cell with --url, or the number of cells on Citus with --cells")
    if cells is not None and not 1 <= cells < CELLS_MAX:
        raise InvalidRequest(f"--cells is {cells}; it must be between 1 and {CELLS_MAX - 1}")

    async def run(home: PostgresStore, given: dict[str, Any]) -> Output:
        from fairlane.cli.processes.banner import mask_password
        from fairlane.store.cells.cluster import add_cell

        added = [await add_cell(home, url, **given) for _ in range(cells or 1)]
        where = {"url": url and mask_password(url)}
        made = [{"cell": cell.number, "schema": cell.schema, **where} for cell in added]
        text = "\n".join(
            f"Added cell {cell.number} (schema {cell.schema}). New queues may be created there from now on."
            for cell in added
        )
        return Output(made[0] if cells is None else made, text)

    _with_home(run, config, json, options)


def move(cell: int, to: str, config: Path | None, json: bool, **options: Any) -> None:
    """Move a cell to another node of Citus while it is used. On other servers, use move-queue."""

    async def run(home: PostgresStore, given: dict[str, Any]) -> Output:
        from fairlane.store.cells.cluster import move_cell

        await move_cell(home, cell, to)
        return Output({"cell": cell, "node": to}, f"Moved cell {cell} to {to}.")

    _with_home(run, config, json, options)


def rebalance(config: Path | None, json: bool, **options: Any) -> None:
    """Spread the cells over the nodes of Citus, in the background. On other servers, use move-queue."""

    async def run(home: PostgresStore, given: dict[str, Any]) -> Output:
        from fairlane.store.cells.cluster import rebalance as start

        started = await start(home)
        text = "Citus moves cells in the background; see `fairlane cluster status`." if started else "Nothing to move."
        return Output({"started": started}, text)

    _with_home(run, config, json, options)


def status(config: Path | None, json: bool, **options: Any) -> None:
    """List the cells with their queues, bytes and messages per second."""

    async def run(home: PostgresStore, given: dict[str, Any]) -> Output:
        from fairlane.cli.toolkit.output import print_lines, print_table
        from fairlane.store.cells.cluster import status as cells_of
        from fairlane.store.cells.move import moves
        from fairlane.wire.cells import cell_view

        found = [cell_view(one) for one in await cells_of(home, **given)]
        titles = ["cell", "node", "schema", "state", "queues", "bytes", "messages/s", "error"]
        moving = [
            f"Moving {one.queue} from cell {one.source} to cell {one.target}: {one.copied:,} of {one.total:,} messages"
            for one in await moves(home)
        ]

        def show() -> None:
            print_table(titles, [list(astuple(one)) for one in found], empty="")
            if moving:
                print_lines("\n".join(moving))

        return Output(found, show)

    _with_home(run, config, json, options)


def close(cell: int, config: Path | None, json: bool, **options: Any) -> None:
    """Stop placing new queues in a cell. It still serves the queues that it has."""
    _set_state(cell, "full", f"Closed cell {cell} for new queues.", config, json, options)


def reopen(cell: int, config: Path | None, json: bool, **options: Any) -> None:
    """Place new queues in a closed cell again."""
    _set_state(cell, "open", f"Cell {cell} gets new queues again.", config, json, options)


def _set_state(cell: int, state: str, text: str, config: Path | None, json: bool, options: Any) -> None:
    async def run(home: PostgresStore, given: dict[str, Any]) -> Output:
        from fairlane.store.cells.cluster import set_state

        await set_state(home, cell, state)
        return Output({"cell": cell, "state": state}, text)

    _with_home(run, config, json, options)


def remove(cell: int, config: Path | None, json: bool, **options: Any) -> None:
    """Remove a cell that has no queues, with its schema. Close it first, so that no new queue is placed there."""

    async def run(home: PostgresStore, given: dict[str, Any]) -> Output:
        from fairlane.store.cells.cluster import remove_cell

        await remove_cell(home, cell, **given)
        return Output({"cell": cell, "removed": True}, f"Removed cell {cell}.")

    _with_home(run, config, json, options)


def move_queue(
    queue: str, to: int | None, tenant: str, abort: bool, config: Path | None, json: bool, **options: Any
) -> None:
    """Move a queue to another cell while producers and consumers use it.

    Everything of the queue moves: messages, groups, cursors, dead letters and scheduled messages. Calls wait for a
    moment at the end. If the command is interrupted, repeat it, or undo the move with --abort.

        fairlane cluster move-queue orders --to 2
    """
    if (to is None) is not abort:
        raise InvalidRequest("name the new cell with --to, or undo an interrupted move with --abort")

    async def run(home: PostgresStore, given: dict[str, Any]) -> Output:
        from fairlane.cli.toolkit.screen import ProgressBar
        from fairlane.store.cells.move import QueueMover

        mover = QueueMover(home, **given)
        if to is None:
            move = await mover.abort(tenant, queue)
            return Output({"queue": queue, "cell": move.source}, f"Queue {queue} stays in cell {move.source}.")
        with ProgressBar() as bar:

            async def show(copied: int, total: int) -> None:
                bar.update(f"{copied:,} of {total:,} messages", copied, total)

            moved = await mover.move(tenant, queue, to, show)
        lines = [f"Moved {queue} from cell {moved.move.source} to cell {to}."]
        if moved.beside:
            lines.append(f"Created beside it and not moved: {', '.join(moved.beside)}")
        if moved.letters_from:
            lines.append(
                f"Queues whose dead letters are forwarded to it, to be moved too: {', '.join(moved.letters_from)}"
            )
        if moved.letters_to:
            lines.append(f"The queue of its dead letters, to be moved too: {moved.letters_to}")
        return Output({"queue": queue, "cell": to, "from": moved.move.source}, "\n".join(lines))

    _with_home(run, config, json, options)


_OPTIONS = [*settings_options(*_SETTINGS), parameter("json", AsJson, False)]
_URL = opt("PostgreSQL URL of the new cell, an empty database.", "--url", metavar="URL")
_QUEUE = parameter("queue", Annotated[str, arg("QUEUE", "Name of the queue.")])
_TO = parameter(
    "to", Annotated[int | None, opt("Number of the cell that gets the queue.", "--to", metavar="CELL")], None
)
_TENANT = parameter("tenant", Annotated[str, opt("Tenant of the queue.")], DEFAULT_TENANT)
_ABORT = parameter("abort", Annotated[bool, opt("Undo an interrupted move.", "--abort")], False)
_CELLS = opt("Number of cells to make on Citus, which places them on its nodes.", "--cells", metavar="COUNT")
_NODE = opt("Node of the Citus cluster, as HOST or HOST:PORT.", "--to", metavar="NODE")
app.add(
    "add",
    add,
    add.__doc__,
    [
        parameter("url", Annotated[str | None, _URL], None),
        parameter("cells", Annotated[int | None, _CELLS], None),
        *_OPTIONS,
    ],
)
app.add("move", move, move.__doc__, [_CELL, parameter("to", Annotated[str, _NODE]), *_OPTIONS])
app.add("rebalance", rebalance, rebalance.__doc__, _OPTIONS)
app.add("status", status, status.__doc__, _OPTIONS)
app.add("move-queue", move_queue, move_queue.__doc__, [_QUEUE, _TO, _TENANT, _ABORT, *_OPTIONS])
app.add("close", close, close.__doc__, [_CELL, *_OPTIONS])
app.add("reopen", reopen, reopen.__doc__, [_CELL, *_OPTIONS])
app.add("remove", remove, remove.__doc__, [_CELL, *_OPTIONS])
