"""Another broker's figures, measured once on a machine like those that this is meant for, and kept as facts."""

from __future__ import annotations

from typing import NamedTuple

NAME = "Queen MQ 0.15"
CONDITIONS = (
    "Queen MQ 0.15 (C++) is not started here. Its figures were measured with the same wrk workloads: 2 cores shared "
    "by load, broker and store, 64 connections, 98-byte payloads, 100 partitions, durable commits, PostgreSQL 15. "
    "Rates are those of that machine; CPU per message is what can be held against another run."
)


class Recorded(NamedTuple):
    """Messages a second, and microseconds of CPU per message."""

    rate: float
    broker_us: float
    store_us: float

    @property
    def servers_us(self) -> float:
        return self.broker_us + self.store_us


QUEEN = {
    "push 1": Recorded(3_393, 182, 151),
    "push 100 to one partition": Recorded(16_773, 42, 67),
    "push 100 over 100 partitions": Recorded(18_489, 37, 65),
    "pop 100, auto-ack": Recorded(32_415, 24, 35),
    "pop 100 + ack": Recorded(7_532, 67, 179),
}
