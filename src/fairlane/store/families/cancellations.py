"""Cancellations: messages that are not delivered again, though they are neither finished nor dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.store.contract.cancellations import CancelledLane
from fairlane.store.families.query import DatabaseTransaction, Family, Value
from fairlane.store.families.scheduled import change

KEEP_SECONDS: Final = 7 * 24 * 3600
"""Time for which the id of a cancelled scheduled message is remembered."""
MessagePosition = tuple[PartitionId, int]
"""Partition and position of a message."""


class Cancellations(Family):
    async def cancel(self, partition: PartitionId, group_id: int, position: int) -> list[CancelledLane]:
        """Cancel a message for a group, or with group 0 for all that have not finished it.

        No pop delivers it from then on, also after a seek. Other messages of its lane go on. A consumer that holds it
        loses it, and keeps the others of its lease; its acks of the message are refused. Group 0 includes groups that
        are created later, and has an element of its own. Empty if there is no such message.
        """
        rows = await self._runner.writes.cancel_message(partition.id, group_id, position)
        return [
            CancelledLane(id, state, token if token is None or isinstance(token, UUID) else UUID(bytes=bytes(token)))
            for id, state, token in rows
        ]

    async def at(self, partition: PartitionId, position: int) -> set[int]:
        """Return the ids of the groups for which a message was cancelled, with 0 for those to come."""
        where: dict[str, Value] = {"partition_id": partition.id, "position": position}
        return {id for (id,) in await self._runner.read("cancellations.at", **where)}

    async def among(self, messages: Sequence[MessagePosition]) -> dict[MessagePosition, set[str]]:
        """Return the cancelled ones among the messages, with their groups, and "" for groups to come."""
        columns: dict[str, Value] = {
            "ids": [partition.id for partition, _ in messages],
            "positions": [position for _, position in messages],
        }
        found: dict[MessagePosition, set[str]] = defaultdict(set)
        for id, position, group in await self._runner.read("cancellations.among", **columns) if messages else ():
            found[PartitionId.of(id), position].add(group)
        return dict(found)

    async def of_leases(self, leases: Sequence[LeaseId]) -> list[tuple[LeaseId, PartitionId, int]]:
        """Return the messages that were cancelled while one of these leases held them."""
        columns: dict[str, Value] = {
            "groups": [lease.group_id for lease in leases],
            "tokens": [lease.token for lease in leases],
        }
        rows = await self._runner.read("cancellations.of_leases", **columns) if leases else []
        return [
            (LeaseId(group_id, token if isinstance(token, UUID) else UUID(bytes=bytes(token))), PartitionId.of(id), at)
            for group_id, token, id, at in rows
        ]

    async def cancel_scheduled(self, partition: PartitionId, transaction_id: str) -> bool:
        """Cancel a scheduled message, and remember its id for a week. Returns False if it is not scheduled."""

        async def work(transaction: DatabaseTransaction) -> bool:
            if await change(transaction.dialect, partition, transaction_id, move=False) is None:
                return False
            where: dict[str, Value] = {"partition_id": partition.id, "transaction_id": transaction_id}
            await transaction.run("cancellations.forget_ids")
            await transaction.run("cancellations.keep_id", seconds=KEEP_SECONDS, **where)
            return True

        return await self._runner.transact(work)

    async def was_scheduled(self, partition: PartitionId, transaction_id: str) -> bool:
        """Return True if a scheduled message with this id was cancelled in the last week."""
        where: dict[str, Value] = {"partition_id": partition.id, "transaction_id": transaction_id}
        return bool(await self._runner.read("cancellations.was_scheduled", **where))
