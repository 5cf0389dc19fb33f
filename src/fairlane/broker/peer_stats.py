"""Statistics of all processes of one broker. This process queries the others each time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from typing import Any, Final, TypeVar

import msgspec

from fairlane.counts import Bin, Minute, QueueCounts, Step, Tally
from fairlane.runtime.peer_processes import PeerProcesses
from fairlane.telemetry import Telemetry
from fairlane.tenant_counters import TenantRate, summed
from fairlane.wire.base import decoder

_EVER: Final = 2**62
T = TypeVar("T", Step, Bin, Minute)
A = TypeVar("A")
Counts = TypeVar("Counts")


class PeerStats:
    """The telemetry of all processes. `peer_processes` is None in a single process.

    Processes that do not answer are left out.
    """

    def __init__(self, telemetry: Telemetry, peer_processes: PeerProcesses | None = None) -> None:
        self.telemetry = telemetry
        self.peer_processes = peer_processes
        self.answers: dict[str, Callable[..., Any]] = {
            "seconds": telemetry.seconds,
            "bins": self._bins,
            "minutes": self._minutes,
            "tenants": telemetry.tenants.rates,
        }
        """Queries that the peer processes may send to this process."""

    async def query(self, kind: type[A], what: str, *given: Any) -> list[A]:
        """Return the answer of this process, and the answers of its peers."""
        own = self.answers.get(what)
        found = [own(*given)] if own else []
        if self.peer_processes is not None:
            for answer in (await self.peer_processes.query(what, *given)).values():
                try:
                    found += [] if answer is None else [decoder(kind).decode(answer)]
                except msgspec.MsgspecError:  # cut off, or from a process of another version
                    continue
        return found

    async def seconds(self) -> list[Step]:
        """Return the last seconds of all queues together."""
        return _joined(await self.query(list[Step], "seconds"), _step)

    async def bins(self, since: int = 0, queues: Collection[int] | None = None) -> list[Bin]:
        """Return the last bins, with the counts of all queues or of these."""
        given = None if queues is None else list(queues)
        return _joined(await self.query(list[Bin], "bins", since, given), _bin)

    async def minutes(self, since: int = 0, until: int = _EVER, queue: int | None = None) -> list[Minute]:
        """Return the minutes that began between `since` and `until`, of all queues or one. The last may be partial."""
        return _joined(await self.query(list[Minute], "minutes", since, until, queue), _minute)

    async def tenant_rates(self) -> dict[str, TenantRate]:
        """Return what each tenant pushed per second in the last minute."""
        return summed(await self.query(dict[str, TenantRate], "tenants"))

    def _bins(self, since: int, queues: list[int] | None) -> list[Bin]:
        found = [one for one in self.telemetry.bins() if one.at >= since]
        if queues is None:
            return found
        return [one._replace(queues=_only(one.queues, queues), depths=_only(one.depths, queues)) for one in found]

    def _minutes(self, since: int, until: int, queue: int | None) -> list[Minute]:
        found = self.telemetry.minutes(since, until)
        if queue is None:
            return found
        return [
            msgspec.structs.replace(one, queues={queue: one.queues[queue]} if queue in one.queues else {})
            for one in found
        ]


def _joined(found: Iterable[list[T]], join: Callable[[T, T], T]) -> list[T]:
    """Join entries of the same time, oldest first."""
    by_time: dict[int, list[T]] = {}
    for row in found:
        for one in row:
            by_time.setdefault(one.at, []).append(one)
    return [reduce(join, by_time[at]) for at in sorted(by_time)]


def _step(one: Step, other: Step) -> Step:
    """Join two steps: counts are added, and the longer latency is kept."""
    return Step(
        one.at,
        tuple(map(sum, zip(one.counts, other.counts, strict=True))),
        tuple(
            max((each for each in pair if each is not None), default=None)
            for pair in zip(one.latencies, other.latencies, strict=True)
        ),
        one.depth if other.depth is None else other.depth,
        one.oldest_at if other.oldest_at is None else other.oldest_at,
    )


def _only(found: Mapping[int, Counts], ids: Iterable[int]) -> dict[int, Counts]:
    return {id: found[id] for id in ids if id in found}


def _bin(one: Bin, other: Bin) -> Bin:
    return Bin(one.at, _queues(one.queues, other.queues), one.lags | other.lags, one.depths | other.depths)


def _minute(one: Minute, other: Minute) -> Minute:
    return Minute(
        at=one.at,
        verbs={kind: Tally(*map(sum, zip(tally, other.verbs[kind], strict=True))) for kind, tally in one.verbs.items()},
        queues=_queues(one.queues, other.queues),
        cpu_seconds=(one.cpu_seconds[0] + other.cpu_seconds[0], one.cpu_seconds[1] + other.cpu_seconds[1]),
        resident_bytes=one.resident_bytes + other.resident_bytes,
        step=_step(one.step, other.step) if one.step and other.step else one.step or other.step,
    )


def _queues(some: dict[int, QueueCounts], more: dict[int, QueueCounts]) -> dict[int, QueueCounts]:
    found = some | more
    for id in some.keys() & more.keys():
        found[id] = msgspec.structs.replace(some[id])
        found[id].add(more[id])
    return found
