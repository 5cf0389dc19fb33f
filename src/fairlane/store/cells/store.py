"""The store of several cells. It is the home alone, at no cost, until the directory has a second cell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Self, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from fairlane.errors import FairlaneError, InvalidRequest, QueueElsewhere, StoreUnavailable
from fairlane.model.cell import CellStatus
from fairlane.model.ids import PartitionId
from fairlane.model.queue import Partition
from fairlane.runtime.clock import Clock
from fairlane.store.cells import placement
from fairlane.store.cells.directory import ONLY_CELL, Cell, Directory, size_of, status_of
from fairlane.store.cells.link import CHECK_SECONDS, CellLink
from fairlane.store.cells.router import CellRouter, RoutedFamily, id_named
from fairlane.store.cells.routes import HOME, ROUTES
from fairlane.store.codec import Codec
from fairlane.store.connecting import ConnectingStore
from fairlane.store.contract.store import Store
from fairlane.store.families.queues import CELLS, Queues
from fairlane.store.keyring import Keyring
from fairlane.store.postgres import citus
from fairlane.store.postgres.store import PostgresStore

SIZE_SECONDS = 10.0
"""Time for which the sizes of cells are used to choose one for a new queue."""

OWNER_SECONDS = 40.0
"""Interval at which the owners of cells on Citus are checked. Longer than any call."""

log = logging.getLogger(__name__)


class CellsStore:
    """A store that implements the contract by the stores of its cells.

    While there is one cell, its families are the home's own, and only `queues` looks for a new cell.
    """

    kind = "postgresql"

    def __init__(self, home: PostgresStore, clock: Clock | None, options: dict[str, Any]) -> None:
        self._home = home
        self.tail_cache = home.tail_cache
        self._clock = clock
        self._options = options
        self._wake: Callable[[int], None] | None = None
        self._cells: Sequence[Cell] = [ONLY_CELL]
        """The cells, as last read from the directory."""
        self._sizes: dict[int, int] = {}
        self._sized_at = 0.0
        self._reloading = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._retired: list[Store] = []
        """Stores that were replaced, until their calls have ended."""
        self.router = CellRouter(CellLink(0, home), Directory(home), self.reload, self.choose)
        self.codec = CellCodecs(self)
        self._route()

    @classmethod
    async def open(cls, url: str, *, clock: Clock | None = None, **options: Any) -> Store:
        """Open the home, and the cells of its directory. A cell that is unavailable is opened later."""
        store = cls(await PostgresStore.open(url, clock=clock, **options), clock, options)
        try:
            await store.reload()
        except BaseException:
            await store.close()
            raise
        return cast(Store, store)

    def _route(self) -> None:
        """Give the families the routes that the number of cells asks for."""
        several = len(self.router.links) > 1
        self._stores = [link.store for link in self.router.links.values()]
        for name, routes in (*((name, None) for name in HOME), *ROUTES.items()):
            setattr(self, name, RoutedFamily(self.router, name, routes) if several else getattr(self._home, name))
        if several:
            self._home.dead_letters.targets = placement.CellTargetQueues(self.router, 0)
        else:
            self.queues = WatchedQueues(self._home.queues, self.reload, lambda: len(self.router.links) > 1)
            self._home.dead_letters.targets = self._home.queues

    async def reload(self) -> None:
        """Bring the links up to date with the directory."""
        async with self._reloading:
            self._cells = await self.router.directory.load() or [ONLY_CELL]
            cells = {cell.number: cell for cell in self._cells if cell.number}
            if cells:
                await self.router.refresh()
            links = self.router.links
            before = set(links)
            for number in [number for number in links if number and number not in cells]:
                await links.pop(number).close()
            for number, cell in cells.items():
                if number not in links:
                    links[number] = CellLink(number, await self._open(cell))
                    if self._wake is not None:
                        links[number].store.listen(self._wake)
                    log.info("cell %(cell)d is in use", {"cell": number})
            if set(links) != before:
                self._route()
            await self._follow_owners()

    async def _follow_owners(self) -> None:
        """Open cells again that Citus moved to another node. Their statements work before that, with a hop."""
        placed = {cell.schema: cell for cell in self._cells if cell.number and cell.url is None}
        if not placed:
            return
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="fairlane cell owners")
        for schema, address in (await citus.owners(self._home.database)).items():
            if (cell := placed.get(schema)) is None:
                continue
            link = self.router.links[cell.number]
            node = getattr(link.store, "node", None)
            if node is None or urlsplit(node).netloc.rpartition("@")[2] == address:
                continue
            if await citus.nearest_url(self._home.url, schema) == node:
                continue
            before, link.store = link.store, await self._open_cell(cell)
            if self._wake is not None:
                link.store.listen(self._wake)
            self._retired.append(before)
            self._route()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(OWNER_SECONDS)
            for store in self._retired:  # their calls have ended
                await store.close()
            self._retired.clear()
            with suppress(FairlaneError):
                async with self._reloading:
                    await self._follow_owners()

    async def _open(self, cell: Cell) -> Store:
        try:
            return await self._open_cell(cell)
        except StoreUnavailable as error:
            log.warning(
                "cell %(cell)d is unavailable, it is opened later: %(error)s", {"cell": cell.number, "error": error}
            )
            return cast(Store, ConnectingStore(self.kind, lambda: self._open_cell(cell), str(error)))

    async def _open_cell(self, cell: Cell) -> Store:
        options = {**self._options, "schema": cell.schema, "cell": cell.number, "tail_cache": self.tail_cache}
        if cell.url is not None:
            options.pop("listen_url", None)
        store = await PostgresStore.open(cell.url or self._home.url, clock=self._clock, **options)
        try:
            await self.codec.pass_settings_to(store)
        except BaseException:
            await store.close()
            raise
        store.dead_letters.targets = placement.CellTargetQueues(self.router, cell.number)
        return store

    async def choose(self) -> int:
        """Return the open and available cell with the fewest bytes, for a new queue."""
        if len(self.router.links) < 2:
            return 0
        if monotonic() > self._sized_at + SIZE_SECONDS:
            states = {cell.number: cell.state for cell in await self.router.directory.load()}
            self._sizes = {}
            for number, link in self.router.links.items():
                if states.get(number) == "open" and not link.down:
                    try:
                        self._sizes[number] = (await size_of(link.opened)).bytes
                    except FairlaneError:
                        link.check_soon()
            self._sized_at = monotonic()
        return min(self._sizes, key=lambda number: (self._sizes[number], number), default=0)

    def family(self, kind: type[Any]) -> Any:
        """Return a family of another package. It knows the queues of the home alone."""
        return self._home.family(kind)

    async def check_cell(self, tenant: str, cell: str) -> None:
        await self.reload()  # it may have been added just now
        if len(self.router.links) > 1:
            await placement.named_cell(self.router, tenant, cell)
        else:
            await self._home.check_cell(tenant, cell)

    async def check_home(self, id: int | PartitionId, what: str) -> None:
        if len(self.router.links) < 2 or not (cell := await self.router.locate(id)):
            return
        await self.router.moved_from([id], [cell])  # it may have been moved just now
        if cell := await self.router.locate(id):
            raise InvalidRequest(
                f"{what} work with queues of the home only, and this queue is in cell {cell}; move it: "
                "`fairlane cluster move-queue QUEUE --to 0`"
            )

    @property
    def sole_broker(self) -> bool:
        return self._home.sole_broker if len(self._stores) == 1 else all(one.sole_broker for one in self._stores)

    @property
    def seals(self) -> bool:
        return self._home.seals

    def id_time(self) -> int:
        if len(self._stores) == 1:
            return self._home.id_time()
        return min(store.id_time() for store in self._stores)

    async def now(self) -> int:
        """Return the time of the home, or that of another cell while the home is unavailable."""
        if len(self.router.links) < 2:
            return await self._home.now()
        for _, link in sorted(self.router.links.items()):
            if not link.down:
                with suppress(StoreUnavailable, TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        return await link.store.now()
                await link.answers()
        raise StoreUnavailable(f"no cell is available: {self.router.home.down}")

    async def check_health(self) -> None:
        """Raise StoreUnavailable if no cell accepts writes. One that does not is left out until it does."""
        links = list(self.router.links.values())
        if len(links) == 1:
            await self._home.check_health()
        elif not any(await asyncio.gather(*(link.answers() for link in links))):
            raise StoreUnavailable(f"no cell is available: {self.router.home.down}")

    async def cells(self) -> list[CellStatus]:
        return list(await asyncio.gather(*(self._status(cell) for cell in self._cells)))

    async def _status(self, cell: Cell) -> CellStatus:
        link = self.router.links[cell.number]
        known = status_of(cell, self._home.url, getattr(link.store, "node", None))
        if not link.down:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    return replace(known, size=await size_of(link.opened))
            except (FairlaneError, TimeoutError) as error:
                link.check_soon()
                return replace(known, error=str(error) or "it does not answer in time")
        return replace(known, error=link.down)

    def cell_health(self) -> dict[int, str]:
        return {number: link.down for number, link in sorted(self.router.links.items())}

    def flushes(self) -> int:
        return sum(store.flushes() for store in self._stores)

    def connections(self) -> tuple[int, int]:
        counts = [store.connections() for store in self._stores]
        return sum(one for one, _ in counts), sum(busy for _, busy in counts)

    async def report(self) -> dict[str, Any]:
        """Return the report of the home, and under `cells` the reports of the other available cells."""
        report = {"kind": self.kind} if self.router.home.down else await self._home.report()
        cells = {}
        for number, link in sorted(self.router.links.items()):
            if number and not link.down:
                cells[str(number)] = await link.store.report()
        return {**report, "cells": cells} if cells else report

    def listen(self, wake: Callable[[int], None]) -> None:
        self._wake = wake
        for store in self._stores:
            store.listen(wake)

    def hint(self, queue_id: int) -> None:
        if (link := self.router.links.get(self.router.cell(queue_id))) is not None:
            link.store.hint(queue_id)

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        for store in self._retired:
            await store.close()
        for link in list(self.router.links.values()):
            await link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class CellCodecs:
    """The codecs of all cells: settings of one are settings of all."""

    def __init__(self, store: CellsStore) -> None:
        self._store = store
        self._always: tuple[str, ...] = ()
        self._keyring: Keyring | None = None

    @property
    def can_seal(self) -> bool:
        return self._keyring is not None

    @property
    def always(self) -> tuple[str, ...]:
        return self._always

    @always.setter
    def always(self, patterns: tuple[str, ...]) -> None:
        self._always = patterns
        for codec in self._codecs():
            codec.always = patterns

    async def set_keyring(self, keyring: Keyring | None, always: tuple[str, ...] | None = None) -> None:
        self._keyring = keyring
        self._always = self._always if always is None else always
        for codec in self._codecs():
            await codec.set_keyring(keyring, always)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """Return a verb of the codec that belongs to the cell of the first argument."""

        def call(*args: Any, **named: Any) -> Any:
            link = self._store.router.links[self._store.router.cell(id_named(args[0]))]
            return getattr(link.opened.codec, verb)(*args, **named)

        return call

    def _codecs(self) -> list[Codec]:
        stores = (link.store for link in self._store.router.links.values())
        return [store.codec for store in stores if isinstance(store, PostgresStore)]

    async def pass_settings_to(self, store: PostgresStore) -> None:
        """Give the settings to the store of a cell that was just opened."""
        await store.codec.set_keyring(self._keyring, self._always)


class WatchedQueues:
    """The queues of the home while there is no other cell. Its `changes` notice when a cell is added."""

    def __init__(self, queues: Queues, reload: Callable[[], Awaitable[None]], several: Callable[[], bool]) -> None:
        self._queues = queues
        self._reload = reload
        self._several = several

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._queues, verb)

    async def partition(self, id: PartitionId, tenant: str | None = None) -> Partition | None:
        if id.cell:
            await self._reload()  # a client knows a cell that was added just now
            if self._several():
                raise QueueElsewhere(f"partition {id} is in a cell that was added just now; try again")
        return await self._queues.partition(id, tenant)

    async def changes(self, since: int) -> tuple[int, list[int] | None]:
        version, ids = await self._queues.changes(since)
        if ids is None or CELLS in ids:
            await self._reload()
        return version, ids and [id for id in ids if id != CELLS]
