"""Unique messages over several cells. A key is in the cell of its queue."""

from __future__ import annotations

from typing import Any

from fairlane.store.cells.cross_cell import only_cell
from fairlane.store.cells.router import Arguments, CellRouter, Named


async def holders(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Look keys up in the cell of their queues. Raises TransactionSpansCells if these are in several."""
    [keys] = args
    return await router.at(await only_cell(router, [], [], [key.queue_id for key in keys]), family, verb, keys)


async def commit(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Run a transaction in the cell of its queues. Raises TransactionSpansCells if these are several cells."""
    _, acks, slices, *scheduled = args
    pushed = [*slices, *(part.slice for parts in scheduled for part in parts)]
    return await router.at(await only_cell(router, acks, pushed), family, verb, *args, **named)
