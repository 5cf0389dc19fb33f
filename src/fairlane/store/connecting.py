"""A proxy for a store that cannot be reached yet. The broker starts with it, and it retries until the store opens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Self

from fairlane.errors import ShuttingDown, StoreUnavailable
from fairlane.model.cell import CellStatus
from fairlane.model.ids import PartitionId
from fairlane.runtime.backoff import backoff
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.store import Store
from fairlane.store.tail_cache import TailCache

_PAUSE_SECONDS = (0.2, 2.0)
_FLUSHES = 2

log = logging.getLogger(__name__)


class ConnectingStore:
    """Raises StoreUnavailable from every verb until the store is open, then forwards to it."""

    sole_broker = False

    def __init__(self, kind: str, open_store: Callable[[], Awaitable[Store]], why: str) -> None:
        self.kind = kind
        self._open_store = open_store
        self._why = why
        self._store: Store | None = None
        self._wake: Callable[[int], None] | None = None
        self._opening = asyncio.create_task(self._open(), name="fairlane connecting store")

    async def _open(self) -> None:
        failures = 0
        while self._store is None:
            failures += 1
            await asyncio.sleep(backoff(failures, base=_PAUSE_SECONDS[0], most=_PAUSE_SECONDS[1]))
            try:
                self._store = await self._open_store()
            except ShuttingDown:
                return
            except StoreUnavailable as error:
                self._why = str(error)
            except Exception as error:  # a boundary: the broker continues without its store, and reports why
                log.error("cannot open the store: %(error)s", {"error": error})
                self._why = str(error)
        if self._wake is not None:
            self._store.listen(self._wake)
        log.info("store opened")

    def opened(self) -> Store:
        if self._store is None:
            raise StoreUnavailable(f"the store is not open yet: {self._why}")
        return self._store

    def family(self, kind: type[Any]) -> Any:
        """Return a family of another package. Raises StoreUnavailable while the store is not open."""
        return self.opened().family(kind)

    def __getattr__(self, family: str) -> Any:
        """Return a family of the store by name."""
        if family.startswith("_"):
            raise AttributeError(family)
        return getattr(self._store, family) if self._store is not None else _Family(self, family)

    @property
    def tail_cache(self) -> TailCache:
        return self._store.tail_cache if self._store is not None else TailCache(0)

    @property
    def seals(self) -> bool:
        return self._store is not None and self._store.seals

    async def check_cell(self, tenant: str, cell: str) -> None:
        await self.opened().check_cell(tenant, cell)

    async def check_home(self, id: int | PartitionId, what: str) -> None:
        await self.opened().check_home(id, what)

    async def now(self) -> int:
        return await self.opened().now()

    async def check_health(self) -> None:
        await self.opened().check_health()

    async def cells(self) -> list[CellStatus]:
        return await self.opened().cells()

    def cell_health(self) -> dict[int, str]:
        return self._store.cell_health() if self._store is not None else {0: self._why}

    def id_time(self) -> int:
        return self._store.id_time() if self._store is not None else wall_clock() // 1000

    def flushes(self) -> int:
        return self._store.flushes() if self._store is not None else _FLUSHES

    def connections(self) -> tuple[int, int]:
        return self._store.connections() if self._store is not None else (0, 0)

    async def report(self) -> dict[str, Any]:
        return await self.opened().report()

    def listen(self, wake: Callable[[int], None]) -> None:
        self._wake = wake
        if self._store is not None:
            self._store.listen(wake)

    def hint(self, queue_id: int) -> None:
        if self._store is not None:
            self._store.hint(queue_id)

    async def close(self) -> None:
        self._opening.cancel()
        await asyncio.wait([self._opening])
        if self._store is not None:
            await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _Family:
    """One family of a connecting store. The store is looked up when a verb is called."""

    def __init__(self, store: ConnectingStore, name: str) -> None:
        self._store = store
        self._name = name

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        async def call(*values: Any, **named: Any) -> Any:
            return await getattr(getattr(self._store.opened(), self._name), verb)(*values, **named)

        return call
