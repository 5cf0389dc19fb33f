"""Figures of Queen MQ, which were measured once on another machine and are kept as facts."""

from __future__ import annotations

from bench.results import Measurement

NAME = "Queen MQ 0.15"
CONDITIONS = (
    "Queen MQ 0.15 (C++) is not part of the run. Its figures were recorded on another machine with the same wrk "
    "workloads: 2 cores shared by load, broker and store, 64 connections, 98-byte payloads, 100 partitions, durable "
    "commits, PostgreSQL 15. Compare its CPU per message rather than its rates, which belong to that machine."
)
QUEEN = {
    "push 1": Measurement(3_393, broker_us=182, store_us=151),
    "push 100 to one partition": Measurement(16_773, broker_us=42, store_us=67),
    "push 100 over 100 partitions": Measurement(18_489, broker_us=37, store_us=65),
    "pop 100, auto-ack": Measurement(32_415, broker_us=24, store_us=35),
    "pop 100 + ack": Measurement(7_532, broker_us=67, store_us=179),
}
