"""Acks of unordered lanes as the arrays that `fairlane.ack_unordered` takes, and its rows as results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import asyncpg

from fairlane.store.contract.values import AckResult, UnorderedAck
from fairlane.store.postgres.ack import STATES

_Item = tuple[int, str, int, int, int, str]


def _items(lane: int, ack: UnorderedAck) -> Iterator[_Item]:
    for first, upto in ack.done:
        yield lane, "d", first, upto, -1, ""
    for nack in ack.nacks:
        delay_ms = -1 if nack.delay_ms is None else nack.delay_ms
        yield lane, "n" if nack.charge else "r", nack.position, nack.position + 1, delay_ms, nack.error
    for dead in ack.dead_letters:
        yield lane, "b", dead.position, dead.position + 1, -1, dead.error


def arguments(shard: int, acks: Sequence[UnorderedAck], now: int | None) -> tuple[object, ...]:
    items = [item for lane, ack in enumerate(acks, 1) for item in _items(lane, ack)]
    results = [(lane, *result) for lane, ack in enumerate(acks, 1) for result in ack.results]
    return (
        shard,
        [ack.partition.id for ack in acks],
        [ack.group_id for ack in acks],
        [ack.token for ack in acks],
        [ack.release for ack in acks],
        *([item[column] for item in items] for column in range(6)),
        [lane for lane, _, _ in results],
        [position for _, position, _ in results],
        [result for _, _, result in results],
        now,
    )


def results(rows: Sequence[asyncpg.Record], count: int) -> list[AckResult]:
    found = [AckResult("gone")] * count
    for lane, state, before, released, finished, lost, died in rows:
        found[lane - 1] = AckResult(
            STATES[state],
            before=before,
            after=before,
            released=released and state == b"o",
            finished=finished,
            lost=lost,
            died=died,
        )
    return found
