"""Transactions over several cells of one Citus cluster. Its coordinator prepares them on all nodes, then commits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import asyncpg

from fairlane.errors import FairlaneError, LaneLocked, OutcomeUnknown, as_outcome_unknown
from fairlane.store.contract.ack_rules import in_force, only_repeats
from fairlane.store.contract.values import AckResult, Added, Gone, LaneAck, PushResult, ScheduledSlice, Slice, Stored
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.driver import WAL_RECORD, SchemaView
from fairlane.store.postgres.messages import Messages
from fairlane.store.postgres.store import PostgresStore

_SETTINGS = """
SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL lock_timeout = '1s';
SET LOCAL citus.allow_nested_distributed_execution = on
"""
_ANY_TABLE = "groups"


@dataclass
class CellPart:
    """The share of one cell in a transaction. `acked` and `pushed` are its results, in order."""

    cell: int
    store: PostgresStore
    acks: Sequence[LaneAck]
    slices: Sequence[Slice]
    scheduled: Sequence[ScheduledSlice]
    acked: list[AckResult] = field(default_factory=list)
    pushed: list[PushResult] = field(default_factory=list)

    @property
    def messages(self) -> Messages:
        return cast("Messages", self.store.messages)

    async def seal(self) -> None:
        codec = self.store.codec
        self.acks, self.slices = await codec.seal_all(self.acks, self.slices)
        self.scheduled = await codec.seal_scheduled(self.scheduled) if self.scheduled else []

    def on(self, connection: asyncpg.Connection[Any]) -> asyncpg.Connection[Any]:
        """Return a connection to the coordinator for statements of this cell. The home's tables are there."""
        if self.cell == 0:
            return connection
        return cast("asyncpg.Connection[Any]", SchemaView(connection, self.store.schema))


class _PartRefused(Exception):
    """The rollback of a transaction whose results were recorded."""


async def transact(coordinator: Database, parts: Sequence[CellPart]) -> None:
    """Apply all parts, sorted by cell, in one transaction, and record their results. Applies nothing if one is refused.

    Raises OutcomeUnknown if the commit fails.
    """
    for part in parts:
        await part.seal()
    committing = False

    async def work(connection: asyncpg.Connection[Any]) -> None:
        nonlocal committing
        if committing:
            raise OutcomeUnknown("the commit of a transaction over several cells failed")
        await connection.execute(_SETTINGS)
        await _use_two_phases(connection, parts)
        await _apply([(part, part.on(connection)) for part in parts])
        committing = True

    try:
        await coordinator.transact(work)
    except _PartRefused:
        for part in parts:  # a standby of its node may not have the repeats that were found
            await part.store.database.write(f"SELECT {WAL_RECORD}")
    except FairlaneError as error:
        if committing:
            raise as_outcome_unknown(error) from error
        if isinstance(error, LaneLocked):
            for part in parts:
                await part.messages.locked.find([*part.acks, *part.slices])
        raise


async def _apply(parts: Sequence[tuple[CellPart, asyncpg.Connection[Any]]]) -> None:
    for part, _ in parts:
        part.acked, part.pushed = [], [Gone()] * (len(part.slices) + len(part.scheduled))
    for part, view in parts:
        await part.messages.lock(view, part.acks, part.slices, [one.partition for one in part.scheduled])
    for part, view in parts:
        part.acked = await part.messages.acks_on(view, part.acks)
    acks = [ack for part, _ in parts for ack in part.acks]
    acked = [result for part, _ in parts for result in part.acked]
    if not all(map(in_force, acks, acked)):
        raise _PartRefused
    for part, view in parts:
        part.pushed = await part.messages.pushes_on(view, part.slices, part.scheduled)
    pushed = [result for part, _ in parts for result in part.pushed]
    if not all(isinstance(result, Stored | Added) for result in pushed) or (only_repeats(acks, acked) and pushed):
        raise _PartRefused


async def _use_two_phases(connection: asyncpg.Connection[Any], parts: Sequence[CellPart]) -> None:
    """Make Citus prepare the transaction.

    It does so by itself for changes on two workers, but not for changes on one worker and in tables of the coordinator.
    A COPY of no rows into a distributed table is enough.
    """
    schema = next(part.store.schema for part in parts if part.cell)
    await connection.copy_to_table(_ANY_TABLE, schema_name=schema, source=_no_rows())


async def _no_rows() -> AsyncIterator[bytes]:
    yield b""
