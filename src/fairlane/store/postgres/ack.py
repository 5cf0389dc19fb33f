"""Acks of ordered lanes as the arrays that `fairlane.ack` takes, and its rows as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import asyncpg

from fairlane.store.contract.values import (
    AckResult,
    Nack,
    OrderedAck,
)

_NO_TOKEN = UUID(int=0)
_NO_NACK = Nack(-1, False, "")
STATES: dict[bytes, Literal["ok", "lost", "gone", "operations_ahead"]] = {
    b"o": "ok",
    b"l": "lost",
    b"g": "gone",
    b"b": "operations_ahead",
}


def arguments(shard: int, acks: Sequence[OrderedAck], now: int | None) -> tuple[object, ...]:
    """`acks` are of one shard and sorted by (partition, group)."""
    nacks = [ack.nack or _NO_NACK for ack in acks]
    dead_letters = [(lane, dead) for lane, ack in enumerate(acks, 1) for dead in ack.dead_letters]
    ahead = [(lane, *span) for lane, ack in enumerate(acks, 1) for span in ack.ahead]
    results = [(lane, *result) for lane, ack in enumerate(acks, 1) for result in ack.results]
    return (
        shard,
        [ack.partition.id for ack in acks],
        [ack.group_id for ack in acks],
        [ack.token is not None for ack in acks],
        [ack.token or _NO_TOKEN for ack in acks],
        [ack.upto for ack in acks],
        [ack.first for ack in acks],
        [nack.position for nack in nacks],
        [nack.charge for nack in nacks],
        [-1 if nack.delay_ms is None else nack.delay_ms for nack in nacks],
        [nack.error for nack in nacks],
        [lane for lane, _ in dead_letters],
        [dead.position for _, dead in dead_letters],
        [dead.error for _, dead in dead_letters],
        [lane for lane, _, _ in ahead],
        [first for _, first, _ in ahead],
        [upto for _, _, upto in ahead],
        [lane for lane, _, _ in results],
        [position for _, position, _ in results],
        [result for _, _, result in results],
        now,
    )


def results(rows: Sequence[asyncpg.Record], count: int) -> list[AckResult]:
    """The result of each of `count` acks."""
    found = [AckResult("gone")] * count
    for lane, state, before, after, dead, released, repeated, limit, finished in rows:
        found[lane - 1] = AckResult(STATES[state], before, after, dead, released, repeated, limit, finished)
    return found
