"""History: what this broker did lately, second by second, and for a day minute by minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from fairlane.broker.catalogue import Catalogue
from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.runtime.clock import wall_clock
from fairlane.telemetry import BIN_SECONDS, BINS_MAX, COUNTED, SECONDS_MAX, QueueCounts, Step, Telemetry
from fairlane.wire.history import History as HistoryAnswer
from fairlane.wire.history import HistoryQuery
from fairlane.wire.queues import Rates

T = TypeVar("T")
_SECOND: Final = 1_000_000
_MINUTE_SECONDS: Final = 60
_RATE_BINS: Final = 2
"""Over which the rates of a queue are taken: long enough that one batch does not look like a flood."""
_NOTHING: Final = (0,) * len(COUNTED)
_NO_LATENCIES: Final = (None,) * 6
_REMEMBERED_SECONDS: Final = 15
"""A count is as good as new for so long: it may have served for some seconds before it was made anew."""


class History:
    def __init__(self, tenant: str, catalogue: Catalogue, telemetry: Telemetry) -> None:
        self._tenant = tenant
        self._catalogue = catalogue
        self._telemetry = telemetry

    async def show(self, query: HistoryQuery) -> HistoryAnswer:
        """What happened in the last minutes, of one queue or of all. Raises NotFound."""
        queue_id = None
        if query.queue is not None:
            queue_id = (await self._catalogue.existing(self._tenant, check_name("queue", query.queue))).id
        seconds = query.minutes * 60
        if seconds > SECONDS_MAX:
            steps, width = self._by_minute(queue_id), _MINUTE_SECONDS
        elif queue_id is None:
            steps, width = self._telemetry.seconds(), 1
        else:
            steps = [_step(one.at, one.queues.get(queue_id)) for one in self._telemetry.bins()]
            width = BIN_SECONDS
        return self._columns(query, steps, width, seconds // width)

    def _by_minute(self, queue_id: int | None) -> list[Step]:
        minutes = self._telemetry.minutes(0, 2**62)[:-1]
        if queue_id is None:
            return [one.step for one in minutes if one.step is not None]
        return [_step(one.at, one.queues.get(queue_id)) for one in minutes]

    def _columns(self, query: HistoryQuery, steps: Iterable[Step], seconds: int, points: int) -> HistoryAnswer:
        width = seconds * _SECOND
        now = wall_clock()
        until = now - now % width
        since = until - points * width
        found = {one.at: one for one in steps}
        started_at = self._telemetry.started_at - width
        silent = Step(0, _NOTHING, _NO_LATENCIES, None, None)
        unknown = Step(0, (), _NO_LATENCIES, None, None)
        row = [found.get(at, silent if at > started_at else unknown) for at in range(since, until, width)]
        columns = [[_rate(one.counts, index, seconds) for one in row] for index in range(len(COUNTED))]
        latencies = [[_ms(one.latencies[index]) for one in row] for index in range(6)]
        times = range(since, until, width)
        ages = [
            None if one.oldest_at is None else max(0.0, round((at - one.oldest_at) / 1e6, 1))
            for at, one in zip(times, row, strict=True)
        ]
        filled = max(1, _REMEMBERED_SECONDS // seconds)
        return HistoryAnswer(
            queue=query.queue,
            step_seconds=seconds,
            since=Moment(since),
            **dict(zip(("pushed", "popped", "acked", "failed", "dead"), columns, strict=True)),
            depth=_carried([one.depth for one in row], filled),
            oldest_seconds=_carried(ages, filled),
            push_p50_ms=latencies[0],
            push_p99_ms=latencies[1],
            pop_p50_ms=latencies[2],
            pop_p99_ms=latencies[3],
            ack_p50_ms=latencies[4],
            ack_p99_ms=latencies[5],
        )

    def rates(self) -> dict[int, Rates]:
        """Messages a second of each queue in the last seconds; of a queue that is not there nothing happened."""
        first = self._last_bin(_RATE_BINS)
        sums: dict[int, QueueCounts] = {}
        for one in self._telemetry.bins():
            if one.at >= first:
                for queue_id, counts in one.queues.items():
                    sums.setdefault(queue_id, QueueCounts()).add(counts)
        seconds = _RATE_BINS * BIN_SECONDS
        return {
            queue_id: Rates(pushed=one.pushed / seconds, popped=one.popped / seconds, acked=one.acks / seconds)
            for queue_id, one in sums.items()
        }

    def sparks(self, queue_ids: Sequence[int]) -> dict[int, list[float]]:
        """Messages pushed a second to each of these queues in the last minutes, in steps of some seconds."""
        first = self._last_bin(BINS_MAX)
        found = {queue_id: [0.0] * BINS_MAX for queue_id in queue_ids}
        for one in self._telemetry.bins():
            index = (one.at - first) // (BIN_SECONDS * _SECOND)
            for queue_id in queue_ids if 0 <= index < BINS_MAX else ():
                counts = one.queues.get(queue_id)
                if counts is not None:
                    found[queue_id][index] = counts.pushed / BIN_SECONDS
        return found

    def _last_bin(self, count: int) -> int:
        """When the first of the last bins began that are over."""
        now, width = wall_clock(), BIN_SECONDS * _SECOND
        return now - now % width - count * width


def _step(at: int, counts: QueueCounts | None) -> Step:
    if counts is None:
        return Step(at, _NOTHING, _NO_LATENCIES, None, None)
    return Step(at, tuple(getattr(counts, name) for name in COUNTED), _NO_LATENCIES, counts.depth, None)


def _rate(counts: tuple[int, ...], index: int, seconds: int) -> float | None:
    return round(counts[index] / seconds, 2) if counts else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _carried(values: list[T | None], steps: int) -> list[T | None]:
    """Each value also where there is none for so many steps after it."""
    found: list[T | None] = []
    last, left = None, 0
    for value in values:
        last, left = (value, steps) if value is not None else (last, left - 1)
        found.append(last if left >= 0 else None)
    return found
