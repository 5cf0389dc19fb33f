"""Progress: how far the handlers of messages are, as they reported it last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.store.families.query import Family

KEEP_SECONDS: Final = 24 * 3600
"""Time after which the progress of a message is deleted, unless its handler reports again."""


class ProgressReport(NamedTuple):
    """The progress of a message, reported by the lease that holds it. `report` is JSON."""

    lease: LeaseId
    partition: PartitionId
    position: int
    report: bytes


class ProgressReports(Family):
    async def report(self, reports: Sequence[ProgressReport], *, tenant: str) -> int:
        """Store the progress of messages, for each the latest. Returns the number of stored reports.

        Reports of leases that do not hold the message are ignored. A report is sealed like the message. Each call
        deletes some old ones.
        """
        codec = self._runner.codec
        reports = list({(one.lease, one.partition, one.position): one for one in reports}.values())
        sealed = [
            await codec.seal(one.partition, one.report, f"progress {one.position}", tenant=tenant) for one in reports
        ]
        await self._runner.write("progress.forget", seconds=KEEP_SECONDS)
        stored = await self._runner.write(
            "progress.report",
            partition_ids=[one.partition.id for one in reports],
            group_ids=[one.lease.group_id for one in reports],
            positions=[one.position for one in reports],
            tokens=[one.lease.token for one in reports],
            reports=sealed,
        )
        return len(stored)

    async def of_message(self, partition: PartitionId, position: int) -> dict[int, tuple[bytes, int]]:
        """Return the progress of a message and its time for each group that holds it and has reported some."""
        found = await self._runner.read("progress.of_message", partition_id=partition.id, position=position)
        codec, label = self._runner.codec, f"progress {position}"
        return {id: (await codec.open(partition, bytes(report), label), at) for id, report, at in found}
