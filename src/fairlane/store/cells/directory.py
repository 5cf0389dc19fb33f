"""The directory of a store of several cells: which cells there are, and which queue is placed in which cell.

It is stored in the home, which is cell 0. A queue that is not placed is in the home. A placement is never deleted with
its queue, so that a broker with an old directory cannot create the queue in another cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import msgspec

from fairlane.model.cell import CellSize, CellStatus
from fairlane.store.postgres import citus
from fairlane.store.postgres.store import PostgresStore
from fairlane.store.statements import load

SQL = load(__package__, "directory.sql")


class Cell(msgspec.Struct, frozen=True):
    """A cell: a schema, in the database of the home if `url` is None."""

    number: int
    schema: str
    url: str | None
    state: str
    """`open`, `full` for one that gets no new queues, or `joining` until every broker respects its queues."""


ONLY_CELL = Cell(0, "fairlane", None, "open")
"""The home of a store that has no directory."""


class Directory:
    """The tables of the directory, and a cache of placements."""

    def __init__(self, home: PostgresStore) -> None:
        self._database = home.database
        self.placed: dict[tuple[str, str], int] = {}
        """Cells by tenant and queue."""

    async def load(self) -> list[Cell]:
        """Return the cells, and read all placements if there are any cells beside the home."""
        cells = [Cell(*row) for row in await self._database.read(SQL["cells"])]
        if cells:
            self.placed = {(tenant, name): cell for tenant, name, cell in await self._database.read(SQL["all_placed"])}
        return cells

    async def find(self, tenant: str, names: Iterable[str]) -> dict[str, int]:
        """Return the cells of those queues that are placed, from the cache or else from the home."""
        found = {name: cell for name in names if (cell := self.placed.get((tenant, name))) is not None}
        if missing := [name for name in names if name not in found]:
            found |= await self.read(tenant, missing)
        return found

    async def read(self, tenant: str, names: Sequence[str]) -> dict[str, int]:
        """Return the current cells of the queues that are placed."""
        return (await self.read_now(tenant, names))[0]

    async def read_now(self, tenant: str, names: Sequence[str]) -> tuple[dict[str, int], bool]:
        """Return the result of `read`, and True if one of the queues is switching to another cell."""
        rows = await self._database.read(SQL["placed"], tenant, list(names))
        for name in names:
            self.placed.pop((tenant, name), None)
        return self._remember(tenant, [row[:2] for row in rows]), any(on_the_way for _, _, on_the_way in rows)

    async def assign(self, tenant: str, names: Sequence[str], cell: int) -> dict[str, int]:
        """Place queues that do not exist in a cell.

        Returns the cell of each, which is another one if it was placed before.
        """
        return self._remember(tenant, await self._database.write(SQL["place"], tenant, list(names), cell))

    async def moved(self) -> tuple[dict[int, int], frozenset[int]]:
        """Return the cells of moved queues and groups, and the ids of queues and groups in transit."""
        rows = await self._database.read(SQL["moved"])
        return {id: cell for id, cell, arrived in rows if arrived}, frozenset(id for id, _, there in rows if not there)

    def _remember(self, tenant: str, rows: Sequence[Any]) -> dict[str, int]:
        found = {name: int(cell) for name, cell in rows}
        self.placed.update({(tenant, name): cell for name, cell in found.items() if cell})
        return found

    async def forget_keys(self, queue_id: int) -> None:
        """Delete the data keys of a deleted queue of another cell, which sealed what the home keeps of it."""
        await self._database.write(SQL["forget_keys"], queue_id)

    async def identify(self) -> UUID:
        """Return the id of this home, which is made once."""
        [[home, _]] = await self._database.write(SQL["identify"], None, 0)
        return UUID(str(home))


def status_of(cell: Cell, home_url: str, node: str | None = None) -> CellStatus:
    """Return the status of a cell without its contents. `node` is the URL of the node on which Citus has it."""
    return CellStatus(
        cell=cell.number, schema=cell.schema, node=node_of(cell.url or node or home_url), state=cell.state
    )


def node_of(url: str) -> str:
    """Return host, port and database of a URL without its credentials, or `...` if the URL cannot be parsed."""
    location, _, query = url.partition("://")[2].partition("?")
    if "@" in query:
        return "..."
    hosts, _, database = location.rpartition("@")[2].partition("/")
    return f"{hosts or ','.join(parse_qs(query).get('host', ['localhost']))}/{database}"


async def size_of(store: PostgresStore) -> CellSize:
    [[queues, bytes, pushed]] = await store.database.read(SQL["size"])
    if store.node is not None:
        bytes = await citus.schema_bytes(store.database)
    return CellSize(queues, bytes, pushed)
