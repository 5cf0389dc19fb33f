"""Settlements as the arrays that `fairlane.ack` takes, and its rows as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import asyncpg

from fairlane.store.values import Nack, Settled, Settlement, Verdicts, in_force, wholly

_NO_TOKEN = UUID(int=0)
_NO_NACK = Nack(-1, False, "")
STATES: dict[bytes, Literal["ok", "lost", "gone", "operations_ahead"]] = {
    b"o": "ok",
    b"l": "lost",
    b"g": "gone",
    b"b": "operations_ahead",
}


def arguments(shard: int, settlements: Sequence[Settlement], now: int | None) -> tuple[object, ...]:
    """`settlements` are of one shard and sorted by (partition, group)."""
    nacks = [settlement.nack or _NO_NACK for settlement in settlements]
    dead_letters = [(lane, dead) for lane, settlement in enumerate(settlements, 1) for dead in settlement.dead_letters]
    ahead = [(lane, *span) for lane, settlement in enumerate(settlements, 1) for span in settlement.ahead]
    results = [(lane, *result) for lane, settlement in enumerate(settlements, 1) for result in settlement.results]
    return (
        shard,
        [settlement.partition.id for settlement in settlements],
        [settlement.group_id for settlement in settlements],
        [settlement.token is not None for settlement in settlements],
        [settlement.token or _NO_TOKEN for settlement in settlements],
        [settlement.upto for settlement in settlements],
        [settlement.first for settlement in settlements],
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


def results(rows: Sequence[asyncpg.Record], count: int) -> list[Settled]:
    """The result of each of `count` settlements."""
    found = [Settled("gone")] * count
    for lane, state, before, after, dead, released, repeated, limit, finished in rows:
        found[lane - 1] = Settled(STATES[state], before, after, dead, released, repeated, limit, finished)
    return found


def applied(settlement: Settlement | Verdicts, settled: Settled) -> bool:
    """Whether all that the settlement said took effect, now or in an earlier try."""
    return wholly(settlement, settled) if isinstance(settlement, Verdicts) else in_force(settlement, settled)
