"""Cells of the store, and findings about cells that do not answer."""

from __future__ import annotations

import time
from typing import Final

from msgspec.structs import replace

from fairlane.broker.count_cache import cache_seconds
from fairlane.broker.finding_text import finding, page_of
from fairlane.errors import StoreUnavailable
from fairlane.model.cell import CellStatus
from fairlane.store.contract.store import Store
from fairlane.wire.cells import CellView, cell_view
from fairlane.wire.monitoring import Finding

_RATE_SECONDS: Final = (1.0, 60.0)
"""Shortest and longest time between the two measurements of a rate."""


class Cells:
    """Cells of the store for operators."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shown: list[CellView] = []
        self._shown_until = 0.0
        self._pushed: dict[int, tuple[float, int]] = {}
        """Time and count of the previous measurement of each cell."""

    async def all(self) -> list[CellView]:
        """Return the cells with their contents. A recent measurement is reused."""
        began = time.monotonic()
        if began >= self._shown_until:
            self._shown = [self._view(one) for one in await self._store.cells()]
            now = time.monotonic()
            self._shown_until = now + max(_RATE_SECONDS[0], cache_seconds(now - began))
        return self._shown

    def _view(self, one: CellStatus) -> CellView:
        return cell_view(replace(one, messages_per_second=one.size and self._rate(one.cell, one.size.pushed)))

    def _rate(self, cell: int, pushed: int) -> float | None:
        now = time.monotonic()
        at, before = self._pushed.get(cell, (0.0, 0))
        self._pushed[cell] = now, pushed
        passed = now - at
        return max(0, pushed - before) / passed if passed <= _RATE_SECONDS[1] else None


def missing_cells(store: Store) -> dict[int, str]:
    """Return the cells that do not answer, with the reasons. None are missing if no cell answers."""
    health = store.cell_health()
    return {cell: why for cell, why in health.items() if why} if len(health) > 1 else {}


def check_complete(store: Store) -> None:
    """Raise StoreUnavailable if lists leave out the queues of a cell that does not answer."""
    for cell, why in missing_cells(store).items():
        raise StoreUnavailable(f"this needs every cell, and cell {cell} does not answer: {why}")


def cell_findings(store: Store) -> list[Finding]:
    """Return a finding for each cell that does not answer."""
    return [
        finding(
            "cell_away",
            f"{f'Cell {cell}' if cell else 'The home (cell 0)'} does not answer: {why}. "
            "Its queues are missing in lists and totals.",
            page_of("cells"),
            key=f"cell_away/{cell}",
        )
        for cell, why in missing_cells(store).items()
    ]
