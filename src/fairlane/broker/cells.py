"""Cells of the store, and the findings about those that do not answer."""

from __future__ import annotations

from fairlane.errors import StoreUnavailable
from fairlane.store.contract.store import Store
from fairlane.wire.monitoring import Finding


def missing_cells(store: Store) -> dict[int, str]:
    """Return the cells that do not answer, with the reasons. None are missing if no cell answers."""
    health = store.cell_health()
    return {cell: why for cell, why in health.items() if why} if len(health) > 1 else {}


def check_complete(store: Store) -> None:
    """Raise StoreUnavailable if lists leave out the queues of a cell that does not answer."""
    for cell, why in missing_cells(store).items():
        raise StoreUnavailable(f"this needs every cell, and cell {cell} does not answer: {why}")


def cells_away(store: Store) -> list[Finding]:
    """Return a finding for each cell that does not answer."""
    return [
        Finding(
            kind="cell_away",
            severity="critical",
            sentence=f"{f'Cell {cell}' if cell else 'The home (cell 0)'} does not answer: {why}. "
            "Its queues are missing in lists and totals.",
            page="/cells",
        )
        for cell, why in missing_cells(store).items()
    ]
