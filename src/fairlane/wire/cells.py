"""Cells on the wire."""

from __future__ import annotations

from typing import Any, Literal

from fairlane.model.cell import CellStatus
from fairlane.wire.base import Answer


class CellView(Answer):
    """A cell: a database with some of the queues."""

    cell: int
    node: str
    """Host, port and name of the database."""
    schema: str
    state: Literal["open", "full", "joining", "unavailable"]
    """`full` if it gets no new queues, `joining` until every broker knows it, `unavailable` if it does not answer."""
    queues: int | None = None
    bytes: int | None = None
    messages_per_second: float | None = None
    """Messages stored per second since the previous measurement. None if there was none in the last minute."""
    error: str | None = None
    """The reason why it does not answer."""


def cell_view(one: CellStatus) -> CellView:
    state: Any = "unavailable" if one.error else one.state
    size = one.size
    return CellView(
        cell=one.cell,
        node=one.node,
        schema=one.schema,
        state=state,
        queues=None if size is None else size.queues,
        bytes=None if size is None else size.bytes,
        messages_per_second=one.messages_per_second,
        error=one.error or None,
    )


class CellList(Answer):
    cells: list[CellView]
