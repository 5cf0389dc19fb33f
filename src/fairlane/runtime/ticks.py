"""Ticks of a schedule. Time zones and their changes of the clock are decided here, and nowhere else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from fairlane.errors import InvalidRequest
from fairlane.wire.schedules import ScheduleOptions

LATE_SECONDS = 60
"""A tick that is younger than this is not missed, but only late."""
_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ticks(options: ScheduleOptions, after: int) -> Iterator[int]:
    """All ticks later than `after`, in microseconds since 1970.

    By cron as people expect of it: a time that the clocks skip ticks when they have been moved on, one that they show
    twice ticks the first time, and what ticks every hour goes by hours that pass."""
    if options.every_seconds is not None:
        step = options.every_seconds * _SECOND
        at = (after // step + 1) * step
        while True:
            yield at
            at += step
    begin = (_EPOCH + timedelta(microseconds=after)).astimezone(zone(options.timezone))
    try:
        for tick in CronSim(options.cron or "", begin):
            yield (tick - _EPOCH) // timedelta(microseconds=1)
    except CronSimError as error:
        raise InvalidRequest(f"cron is {options.cron!r:.80}: {error}") from None


def next_tick(options: ScheduleOptions, after: int) -> int:
    """InvalidRequest if there is none: the expression is not one, or names no day that ever comes."""
    for at in ticks(options, after):
        return at
    raise InvalidRequest(f"cron is {options.cron!r:.80}, which no time ever fits")


def due(options: ScheduleOptions, next_at: int, now: int, *, most: int) -> tuple[list[int], int]:
    """The ticks to push of those from `next_at` until now, up to `most`, and the tick to wait for after them."""
    now = max(now, next_at)  # which is due, whenever the clock was read
    if options.missed == "all":
        passed = list(islice(_until(options, next_at - 1, now), most))
        return passed, next_tick(options, passed[-1] if passed else now)
    latest = _latest(options, next_at, now)
    if options.missed == "skip" and now - latest > LATE_SECONDS * _SECOND:
        return [], next_tick(options, now)
    return [latest], next_tick(options, now)


def _until(options: ScheduleOptions, after: int, now: int) -> Iterator[int]:
    return takewhile(lambda at: at <= now, ticks(options, after))


def _latest(options: ScheduleOptions, next_at: int, now: int) -> int:
    """The last tick until now. Looked for from the end, for there may have been very many."""
    seconds = LATE_SECONDS
    while (start := now - seconds * _SECOND) >= next_at:
        found = deque(_until(options, start, now), maxlen=1)
        if found:
            return found[0]
        seconds *= 8
    return deque(_until(options, next_at - 1, now), maxlen=1)[0]


def zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidRequest(f"there is no time zone {name!r:.80}; use a name like Europe/Rome") from None
