"""The link to one cell: its store, and whether it answers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from fairlane.errors import FairlaneError, OutcomeUnknown, StoreUnavailable
from fairlane.store.contract.store import Store

CHECK_SECONDS = 2.0
"""Time for the answer to a health check."""
PAUSE_SECONDS = 0.5
"""Pause between two health checks while the cell is down."""

_TRIES = 3
"""Connections that a health check tries, because one that was cut does not mean that the cell is down."""

log = logging.getLogger(__name__)


class CellDown(StoreUnavailable):
    """The cell did not answer its last health check."""


class CellLink:
    """One cell, with its store and its health.

    After a health check without an answer, calls fail at once until one is answered, so that a cell that is down delays
    no other.
    """

    def __init__(self, cell: int, store: Store) -> None:
        self.cell = cell
        self.store = store
        self.down = ""
        """The reason why the cell is down, empty if it is up."""
        self.turns = 0
        """Counts how often the cell went down or came back."""
        self._checking: asyncio.Task[None] | None = None
        self._closed = False
        self._calls: set[asyncio.Timeout] = set()
        """Calls in flight, which end when the cell is found to be down."""

    async def call(self, family: str, verb: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a verb of a family in this cell. Raises StoreUnavailable at once while the cell is down."""
        self.check_up()
        try:
            async with asyncio.timeout(None) as limit:
                self._calls.add(limit)
                try:
                    return await getattr(getattr(self.store, family), verb)(*args, **named)
                finally:
                    self._calls.discard(limit)
        except (StoreUnavailable, OutcomeUnknown):
            self.check_soon()
            raise
        except TimeoutError:
            raise OutcomeUnknown(f"cell {self.cell} stopped answering during a call") from None

    def check_up(self) -> None:
        """Raise CellDown while the cell is down."""
        if self.down:
            raise CellDown(f"cell {self.cell} is unavailable: {self.down}")

    async def read(self, family: str, verb: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a verb that only reads. Raises CellDown, instead of other errors, if the cell is down after it."""
        checking = asyncio.get_running_loop().call_later(CHECK_SECONDS, self.check_soon)
        try:
            return await self.call(family, verb, args, named)
        except (StoreUnavailable, OutcomeUnknown) as error:
            if self.down or not await self.answers():
                raise CellDown(f"cell {self.cell} is unavailable: {self.down}") from error
            raise
        finally:
            checking.cancel()

    def check_soon(self) -> None:
        if not self._closed and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._check(), name="fairlane cell health")

    async def answers(self) -> bool:
        """Return True if the cell commits a write in time. Otherwise it is down from now on."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._write()
        except (FairlaneError, TimeoutError) as error:
            if not self.down:
                log.warning("cell %(cell)d is unavailable: %(error)s", {"cell": self.cell, "error": error})
            self.turns += not self.down
            self.down = str(error) or "it does not answer"
            for call in list(self._calls):
                if not call.expired():
                    call.reschedule(asyncio.get_running_loop().time())
            self.check_soon()
            return False
        if self.down:
            log.warning("cell %(cell)d is available again", {"cell": self.cell})
            self.down = ""
            self.turns += 1
        return True

    async def _write(self) -> None:
        for left in reversed(range(_TRIES)):
            try:
                return await self.store.check_health()
            except (StoreUnavailable, OutcomeUnknown):
                if not left:
                    raise

    async def _check(self) -> None:
        """Check until the cell answers."""
        while True:
            if await self.answers():
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        self._closed = True
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        await self.store.close()

    @property
    def opened(self) -> Any:
        """The store itself. Raises StoreUnavailable if it could not be reached yet."""
        connecting = getattr(self.store, "opened", None)
        return connecting() if connecting is not None else cast(Any, self.store)
