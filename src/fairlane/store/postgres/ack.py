"""Acks of lanes as the arrays that `fairlane.ack` and `fairlane.ack_unordered` take, and their rows as results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal
from uuid import UUID

import asyncpg

from fairlane.store.contract.values import AckResult, LaneAck, Nack

_NO_TOKEN = UUID(int=0)
_NO_NACK = Nack(-1, False, "")
Verdict = Literal["done", "failed", "retry", "dead_letter"]
"""The verdict on a message of an unordered lane, as `fairlane.ack_unordered` takes it."""


def arguments(acks: Sequence[LaneAck], now: int | None) -> tuple[object, ...]:
    """Return the arguments of `fairlane.ack` for acks of ordered lanes, sorted by partition and group."""
    nacks = [ack.nacks[0] if ack.nacks else _NO_NACK for ack in acks]
    done = [ack.done[0] if ack.done else (0, 0) for ack in acks]
    dead_letters = [(lane, dead) for lane, ack in enumerate(acks, 1) for dead in ack.dead_letters]
    ahead = [(lane, *span) for lane, ack in enumerate(acks, 1) for span in ack.done[1:]]
    return (
        [ack.partition.id for ack in acks],
        [ack.group_id for ack in acks],
        [ack.token is not None for ack in acks],
        [ack.token or _NO_TOKEN for ack in acks],
        [upto for _, upto in done],
        [first for first, _ in done],
        [nack.position for nack in nacks],
        [nack.charge for nack in nacks],
        [_delay_ms(nack) for nack in nacks],
        [nack.error for nack in nacks],
        _tracebacks([nack.traceback for nack in nacks]),
        [lane for lane, _ in dead_letters],
        [dead.position for _, dead in dead_letters],
        [dead.error for _, dead in dead_letters],
        [dead.traceback for _, dead in dead_letters],
        [lane for lane, _, _ in ahead],
        [first for _, first, _ in ahead],
        [upto for _, _, upto in ahead],
        *_results(acks),
        now,
    )


def results(rows: Sequence[asyncpg.Record], count: int) -> list[AckResult]:
    """Return the result of each of `count` acks."""
    found = [AckResult("gone")] * count
    for lane, state, before, after, dead, released, repeated, limit, finished in rows:
        found[lane - 1] = AckResult(state, before, after, dead, released, repeated, limit, finished)
    return found


def unordered_arguments(acks: Sequence[LaneAck], now: int | None) -> tuple[object, ...]:
    items = [item for lane, ack in enumerate(acks, 1) for item in _items(lane, ack)]
    return (
        [ack.partition.id for ack in acks],
        [ack.group_id for ack in acks],
        [ack.token for ack in acks],
        [ack.release for ack in acks],
        *([item[column] for item in items] for column in range(6)),
        _tracebacks([item[6] for item in items]),
        *_results(acks),
        now,
    )


def unordered_results(rows: Sequence[asyncpg.Record], count: int) -> list[AckResult]:
    found = [AckResult("gone")] * count
    for lane, state, before, released, finished, lost, died in rows:
        found[lane - 1] = AckResult(
            state,
            before=before,
            after=before,
            released=released and state == "ok",
            finished=finished,
            lost=lost,
            died=died,
        )
    return found


def _items(lane: int, ack: LaneAck) -> Iterator[tuple[int, Verdict, int, int, int, str, str | None]]:
    for first, upto in ack.done:
        yield lane, "done", first, upto, -1, "", None
    for nack in ack.nacks:
        verdict: Verdict = "failed" if nack.charge else "retry"
        yield lane, verdict, nack.position, nack.position + 1, _delay_ms(nack), nack.error, nack.traceback
    for dead in ack.dead_letters:
        yield lane, "dead_letter", dead.position, dead.position + 1, -1, dead.error, dead.traceback


def _tracebacks(found: list[str | None]) -> list[str | None]:
    """Return the tracebacks as an argument, which is empty in the common case that there are none."""
    return found if any(found) else []


def _delay_ms(nack: Nack) -> int:
    return -1 if nack.delay_ms is None else nack.delay_ms


def _results(acks: Sequence[LaneAck]) -> tuple[list[int], list[int], list[bytes]]:
    """Return the results of acked messages as columns: lane, position, result."""
    rows = [(lane, *result) for lane, ack in enumerate(acks, 1) for result in ack.results]
    return [lane for lane, _, _ in rows], [position for _, position, _ in rows], [result for _, _, result in rows]
