"""The open fan-ins that a broker knows, so that an ack of a part wakes the service that pushes callbacks at once."""

from __future__ import annotations

import asyncio

from fairlane.model.ids import PartitionId


class FanInWatch:
    def __init__(self) -> None:
        self.queues: set[int] = set()
        """Queues with open parts. May lack those that other brokers added a moment ago."""
        self.touched: set[PartitionId] = set()
        """Partitions of these queues with acks since the last check."""
        self.made: set[str] = set()
        """New fan-ins without open parts."""
        self.news = asyncio.Event()

    def touch(self, partition: PartitionId) -> None:
        self.touched.add(partition)
        self.news.set()
