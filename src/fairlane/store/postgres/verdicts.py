"""Verdicts as the arrays that `fairlane.settle` takes, and its rows as results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import asyncpg

from fairlane.store.postgres.ack import STATES
from fairlane.store.values import Settled, Verdicts

_Item = tuple[int, str, int, int, int, str]


def _items(lane: int, verdicts: Verdicts) -> Iterator[_Item]:
    for first, upto in verdicts.done:
        yield lane, "d", first, upto, -1, ""
    for nack in verdicts.nacks:
        delay_ms = -1 if nack.delay_ms is None else nack.delay_ms
        yield lane, "n" if nack.charge else "r", nack.position, nack.position + 1, delay_ms, nack.error
    for dead in verdicts.dead_letters:
        yield lane, "b", dead.position, dead.position + 1, -1, dead.error


def arguments(shard: int, said: Sequence[Verdicts], now: int | None) -> tuple[object, ...]:
    items = [item for lane, verdicts in enumerate(said, 1) for item in _items(lane, verdicts)]
    results = [(lane, *result) for lane, verdicts in enumerate(said, 1) for result in verdicts.results]
    return (
        shard,
        [verdicts.partition.id for verdicts in said],
        [verdicts.group_id for verdicts in said],
        [verdicts.token for verdicts in said],
        [verdicts.release for verdicts in said],
        *([item[column] for item in items] for column in range(6)),
        [lane for lane, _, _ in results],
        [position for _, position, _ in results],
        [result for _, _, result in results],
        now,
    )


def results(rows: Sequence[asyncpg.Record], count: int) -> list[Settled]:
    found = [Settled("gone")] * count
    for lane, state, before, released, finished, lost, died in rows:
        found[lane - 1] = Settled(
            STATES[state],
            before=before,
            after=before,
            released=released and state == b"o",
            finished=finished,
            lost=lost,
            died=died,
        )
    return found
