"""History: the last five minutes of this broker's processes, and thirty days of the whole store.

The store has one sample per minute (`services/history_recorder.py`), which all brokers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from fairlane.broker import stored_history
from fairlane.broker.resource import Resource
from fairlane.broker.stored_history import LATENCIES
from fairlane.counts import Bin, QueueCounts, Step
from fairlane.errors import InvalidRequest
from fairlane.model.history import EVERYTHING, KEEP_MINUTES, of_group, of_queue
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_TENANT, check_count, check_name
from fairlane.runtime.clock import wall_clock
from fairlane.telemetry import BIN_SECONDS, BINS_MAX, COUNTED, SECONDS_MAX
from fairlane.wire.monitoring import History as HistoryAnswer
from fairlane.wire.queues import Rates

T = TypeVar("T")
_SECOND: Final = 1_000_000
_RATE_BINS: Final = 2
"""Number of bins for the rates of a queue, enough that one batch does not look like a flood."""
_NOTHING: Final = (0,) * len(COUNTED)
_NO_COUNTS: Final = QueueCounts()
_NO_LATENCIES: Final = (None,) * len(LATENCIES)
_REMEMBERED_SECONDS: Final = 15
"""Time for which a count is reused, including the time since it was made."""


class History(Resource):
    async def show(
        self, queue: str | None = None, *, group: str | None = None, minutes: int = 60, until: Moment | None = None
    ) -> HistoryAnswer:
        """Return the history of one queue or of all up to `until`, with the lag of a group. Raises NotFound."""
        check_count("minutes", minutes, least=1, most=KEEP_MINUTES)
        group_id = 0
        ids: list[int] | None = None
        if queue is not None:
            known = await self._catalogue.existing(self._tenant, check_name("queue", queue))
            ids = [known.id]
            if group is not None:
                group_id = (await self._catalogue.existing_group(known, group)).id
        elif group is not None:
            raise InvalidRequest("`group` needs `queue`: each queue has groups of its own")
        elif self._tenant != DEFAULT_TENANT:  # the default tenant sees everything that the broker does
            ids = [one.id for one in await self._store.queues.all(self._tenant)]
        seconds = minutes * 60
        if seconds > SECONDS_MAX or until is not None:
            times = stored_history.time_range(minutes, wall_clock() if until is None else min(until, wall_clock()))
            return await self._stored((queue, group), ids, group_id, times)
        if ids is not None:
            bins, width = await self._engine.peer_stats.bins(queues=ids), BIN_SECONDS
            steps = [_step(one, ids, group_id) for one in bins]
        else:
            steps, width = await self._engine.peer_stats.seconds(), 1
        return self._columns((queue, group), steps, width, seconds // width)

    async def _stored(
        self, of: tuple[str | None, str | None], ids: list[int] | None, group_id: int, times: tuple[range, int]
    ) -> HistoryAnswer:
        """Return the history that the store has."""
        starts = times[0]
        subjects = [EVERYTHING] if ids is None else [of_queue(id) for id in ids]
        group = of_group(group_id) if group_id else None
        wanted = {EVERYTHING, *subjects, *([group] if group is not None else [])}
        found = await self._store.history.read(list(wanted), since=starts.start, until=starts.stop)
        return stored_history.answer(of, times, found, subjects, group)

    def _columns(
        self, of: tuple[str | None, str | None], steps: Iterable[Step], seconds: int, points: int
    ) -> HistoryAnswer:
        width = seconds * _SECOND
        now = wall_clock()
        until = now - now % width
        since = until - points * width
        found = {one.at: one for one in steps}
        started_at = self._engine.telemetry.started_at - width
        silent = Step(0, _NOTHING, _NO_LATENCIES, None, None)
        unknown = Step(0, (), _NO_LATENCIES, None, None)
        row = [found.get(at, silent if at > started_at else unknown) for at in range(since, until, width)]
        columns = [[_rate(one.counts, index, seconds) for one in row] for index in range(len(COUNTED))]
        latencies = [[_ms(one.latencies[index]) for one in row] for index in range(len(LATENCIES))]
        times = range(since, until, width)
        ages = [
            None if one.oldest_at is None else max(0.0, round((at - one.oldest_at) / 1e6, 1))
            for at, one in zip(times, row, strict=True)
        ]
        filled = max(1, _REMEMBERED_SECONDS // seconds)
        return HistoryAnswer(
            queue=of[0],
            group=of[1],
            step_seconds=seconds,
            since=Moment(since),
            **dict(zip(("pushed", "popped", "acked", "failed", "dead"), columns, strict=True)),
            depth=_carried([one.depth for one in row], filled),
            oldest_seconds=_carried(ages, filled),
            lag=_carried([one.lag for one in row], filled),
            wait_mean_ms=[round(one.times[0] / one.times[1], 1) if one.times else None for one in row],
            wait_max_ms=[one.times[2] if one.times else None for one in row],
            **dict(zip(LATENCIES, latencies, strict=True)),
        )

    async def rates(self) -> dict[int, Rates]:
        """Return the recent messages per second of each queue. Queues without activity are missing."""
        first = self._last_bin(_RATE_BINS)
        sums: dict[int, QueueCounts] = {}
        for one in await self._engine.peer_stats.bins(first):
            for queue_id, counts in one.queues.items():
                sums.setdefault(queue_id, QueueCounts()).add(counts)
        seconds = _RATE_BINS * BIN_SECONDS
        return {
            queue_id: Rates(pushed=one.pushed / seconds, popped=one.popped / seconds, acked=one.acks / seconds)
            for queue_id, one in sums.items()
        }

    async def sparks(self, queue_ids: Sequence[int]) -> dict[int, list[float]]:
        """Return the recent pushed messages per second of these queues, in steps of some seconds."""
        first = self._last_bin(BINS_MAX)
        found = {queue_id: [0.0] * BINS_MAX for queue_id in queue_ids}
        for one in await self._engine.peer_stats.bins(first, queue_ids):
            index = (one.at - first) // (BIN_SECONDS * _SECOND)
            for queue_id in queue_ids if 0 <= index < BINS_MAX else ():
                counts = one.queues.get(queue_id)
                if counts is not None:
                    found[queue_id][index] = counts.pushed / BIN_SECONDS
        return found

    def _last_bin(self, count: int) -> int:
        """Return the start of the first of the last complete bins."""
        now, width = wall_clock(), BIN_SECONDS * _SECOND
        return now - now % width - count * width


def _step(one: Bin, ids: Iterable[int], group_id: int) -> Step:
    found = [one.queues.get(id, _NO_COUNTS) for id in ids]
    counted = tuple(sum(getattr(counts, name) for counts in found) for name in COUNTED)
    depths = [one.depths[id] for id in ids if id in one.depths]
    reads = sum(counts.pops - counts.pops_empty for counts in found)
    longest = max([counts.lag_max_ms for counts in found], default=0.0)
    times = (sum(counts.lag_ms for counts in found), reads, longest) if reads else None
    return Step(one.at, counted, _NO_LATENCIES, sum(depths) if depths else None, None, one.lags.get(group_id), times)


def _rate(counts: tuple[int, ...], index: int, seconds: int) -> float | None:
    return round(counts[index] / seconds, 2) if counts else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _carried(values: list[T | None], steps: int) -> list[T | None]:
    """Return the values, each repeated for up to `steps` missing values after it."""
    found: list[T | None] = []
    last, left = None, 0
    for value in values:
        last, left = (value, steps) if value is not None else (last, left - 1)
        found.append(last if left >= 0 else None)
    return found
