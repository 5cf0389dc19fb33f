"""Cells: list."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.wire.cells import CellList

routes = Routes("cells")


@routes.get("/api/v1/cells", needs="status", live=True, operator=True)
async def list_cells(broker: Broker) -> CellList:
    """List the cells of the store with their queues, bytes and messages per second."""
    return CellList(cells=await broker.process.cells.all())
