"""Changes of the cells of a store: add one, close one for new queues, remove an empty one, and show all."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec

from fairlane.errors import Conflict, FairlaneError, InvalidRequest, NotFound
from fairlane.model.cell import CellSize, CellStatus
from fairlane.store.cells.directory import ONLY_CELL, SQL, Cell, Directory, size_of, status_of
from fairlane.store.postgres import citus
from fairlane.store.postgres.connection import Database, open_database
from fairlane.store.postgres.driver import in_schema
from fairlane.store.postgres.store import PostgresStore

SAMPLE_SECONDS = 1.0


async def add_cell(home: PostgresStore, url: str | None, **options: Any) -> Cell:
    """Make the database at `url` a cell of the store, and let new queues be placed there.

    Without a URL the cell is a schema in the database of the home, which Citus places on a node.

    Raises Conflict if the database is a cell already, or holds another store. An interrupted call may be repeated.
    """
    if url is None and not (await home.database.read(citus.INSTALLED))[0][0]:
        raise InvalidRequest("this server is not Citus, which places cells by itself: name a database with --url")
    directory = Directory(home)
    home_id = await directory.identify()
    cells = await directory.load()
    [[number]] = await home.database.read(SQL["next_cell"])
    waiting = next((cell for cell in cells if cell.state == "joining" and cell.url == url), None)
    cell = waiting or Cell(number, f"fairlane_{number}", url, "joining")
    if url is not None:
        await _check_free(url, home_id, cell, options)
    async with await PostgresStore.open(
        url or home.url, direct=False, schema=cell.schema, cell=cell.number, **options
    ) as store:
        [[owner, known]] = await store.database.write(SQL["identify"], home_id, cell.number)
        if (UUID(str(owner)), known) != (home_id, cell.number):
            raise Conflict(f"the schema {cell.schema} of that database is cell {known} of another store")
    if waiting is None and not await home.database.write(SQL["add"], cell.number, cell.schema, url):
        raise Conflict("another cell was added meanwhile; try again")

    async def open_it(connection: Any) -> None:
        await connection.execute(SQL["lock_queues"])
        await connection.fetch(SQL["set_state"], cell.number, "open")

    await home.database.transact(open_it)
    await home.queues.note_cells()
    return msgspec.structs.replace(cell, state="open")


async def _check_free(url: str, home_id: UUID, cell: Cell, options: dict[str, Any]) -> None:
    """Raise Conflict if the database contains another cell or a store."""
    database = await _connect(url, options)
    try:
        for (schema,) in await database.read(SQL["found"]):
            rows = await database.read(in_schema(SQL["identity"], schema))
            owner, known = (UUID(str(rows[0][0])), rows[0][1]) if rows else (None, None)
            if owner == home_id and known != cell.number:
                raise Conflict(f"that database is cell {known} already; nothing was changed")
            if owner != home_id:
                raise Conflict(
                    f"that database holds another store, in the schema {schema}; name an empty one (CREATE DATABASE)"
                )
    finally:
        await database.close()


async def _connect(url: str, options: dict[str, Any]) -> Database:
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidRequest("a cell is a PostgreSQL database, named as postgresql://...")
    cache = bool(options.get("statement_cache", True))
    return await open_database(url, connections=1, statement_cache=cache, clock=None)


async def set_state(home: PostgresStore, number: int, state: str) -> None:
    """Allow (`open`) or stop (`full`) placing new queues in a cell. Raises NotFound."""
    if not await home.database.write(SQL["set_state"], number, state):
        raise NotFound(f"there is no cell {number}")
    await home.queues.note_cells()


async def remove_cell(home: PostgresStore, number: int, **options: Any) -> None:
    """Remove a cell without queues, with its schema. Raises Conflict, and changes nothing, if it has queues."""
    cells = {cell.number: cell for cell in await Directory(home).load()}
    if number == 0:
        raise Conflict("cell 0 is the home, which has the directory; it cannot be removed")
    if (cell := cells.get(number)) is None:
        raise NotFound(f"there is no cell {number}")

    async def drop(connection: Any) -> None:
        await connection.fetch(SQL["lock_births"])
        if queues := await connection.fetchval(SQL["count_queues"]):
            raise Conflict(f"cell {number} has {queues} queues; delete or move them first")
        # A broker that did not notice yet cannot create a queue there.
        await connection.execute(f"DROP SCHEMA {cell.schema} CASCADE")

    async def remove(connection: Any) -> None:
        if moving := [queue for (queue,) in await connection.fetch(SQL["hold_cell"], number) if queue is not None]:
            raise Conflict(
                f"queue {moving[0]!r:.80} is being moved to or from cell {number}; finish or abort that first"
            )
        async with await open_cell(home, cell, direct=False, **options) as store:
            await store.database.transact(drop)
        await connection.execute(SQL["remove"], number)

    await home.database.transact(remove)
    await home.queues.note_cells()


async def move_cell(home: PostgresStore, number: int, node: str) -> None:
    """Move a cell to another node of Citus. Raises InvalidRequest on other servers, and NotFound."""
    await _check_citus(home)
    cells = {cell.number: cell for cell in await Directory(home).load()}
    if (cell := cells.get(number)) is None:
        raise NotFound(f"there is no cell {number}")
    if cell.schema not in await citus.owners(home.database):
        raise InvalidRequest(
            f"not here: cell {number} is not placed by Citus; move its queues (fairlane cluster move-queue)"
        )
    await citus.move(home.url, cell.schema, node)
    await home.queues.note_cells()


async def rebalance(home: PostgresStore) -> bool:
    """Spread the cells over the nodes of Citus. Returns False if nothing is to be moved. Raises InvalidRequest."""
    await _check_citus(home)
    return await citus.rebalance(home.url)


async def _check_citus(home: PostgresStore) -> None:
    if not (await home.database.read(citus.INSTALLED))[0][0]:
        raise InvalidRequest("not here: only Citus moves cells; move queues (fairlane cluster move-queue)")


async def open_cell(home: PostgresStore, cell: Cell, **options: Any) -> PostgresStore:
    return await PostgresStore.open(cell.url or home.url, schema=cell.schema, cell=cell.number, **options)


async def status(home: PostgresStore, **options: Any) -> list[CellStatus]:
    """Return all cells. One that does not answer has an error instead of its contents."""
    cells = await Directory(home).load() or [ONLY_CELL]
    return list(await asyncio.gather(*(_status(home, cell, options) for cell in cells)))


async def _status(home: PostgresStore, cell: Cell, options: dict[str, Any]) -> CellStatus:
    known = status_of(cell, home.url)
    try:
        if cell.number == 0:
            size, rate = await _measure(home)
        else:
            async with await open_cell(home, cell, **options) as store:
                size, rate = await _measure(store)
                known = status_of(cell, home.url, store.node)
    except FairlaneError as error:
        return msgspec.structs.replace(known, error=str(error))
    return msgspec.structs.replace(known, size=size, messages_per_second=rate)


async def _measure(store: PostgresStore) -> tuple[CellSize, float]:
    first = await size_of(store)
    await asyncio.sleep(SAMPLE_SECONDS)
    last = await size_of(store)
    return last, max(0, last.pushed - first.pushed) / SAMPLE_SECONDS
