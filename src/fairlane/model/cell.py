"""Cells: the databases that share the queues of a store."""

from __future__ import annotations

import msgspec


class CellSize(msgspec.Struct, frozen=True):
    """The contents of a cell. `pushed` counts all messages that its partitions ever got."""

    queues: int
    bytes: int
    pushed: int


class CellStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A cell, and its contents if it answers."""

    cell: int
    schema: str
    node: str
    """Host, port and name of the database, or the path of a file."""
    state: str
    """`open`, `full` for one that gets no new queues, or `joining`."""
    size: CellSize | None = None
    messages_per_second: float | None = None
    """Messages stored per second. None before the second measurement."""
    error: str = ""
    """The reason why it does not answer, empty if it does."""
