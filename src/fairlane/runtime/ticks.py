"""Ticks of a schedule. Time zones and daylight saving time are handled here, and nowhere else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from fairlane.errors import InvalidRequest
from fairlane.extras import MissingExtra
from fairlane.wire.schedules import ScheduleOptions

LATE_SECONDS = 60
"""Age up to which a tick is only late, and not missed."""
_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ticks(options: ScheduleOptions, after: int) -> Iterator[int]:
    """Yield all ticks later than `after`, in microseconds since 1970.

    When the clocks change, a cron time that is skipped ticks right after the change, and one that occurs twice ticks
    the first time. Hourly expressions follow elapsed hours.
    """
    if options.every_seconds is not None:
        step = options.every_seconds * _SECOND
        at = (after // step + 1) * step
        while True:
            yield at
            at += step
    try:
        from cronsim import CronSim, CronSimError  # an interval needs no library
    except ModuleNotFoundError as error:
        raise MissingExtra("a cron expression", "worker", error.name) from None
    begin = (_EPOCH + timedelta(microseconds=after)).astimezone(zone(options.timezone))
    try:
        for tick in CronSim(options.cron or "", begin):
            yield (tick - _EPOCH) // timedelta(microseconds=1)
    except CronSimError as error:
        fields = "write minute, hour, day, month and weekday, like `0 9 * * MON`"
        raise InvalidRequest(f"cron is {options.cron!r:.80}: {error}; {fields}") from None


def next_tick(options: ScheduleOptions, after: int) -> int:
    """Return the first tick after `after`. Raises InvalidRequest for an invalid expression or one that never ticks."""
    for at in ticks(options, after):
        return at
    raise InvalidRequest(f"cron is {options.cron!r:.80}, which never matches")


def due(options: ScheduleOptions, next_at: int, now: int, *, most: int) -> tuple[list[int], int]:
    """Return the ticks to push from `next_at` until now, at most `most`, and the tick to wait for after them."""
    now = max(now, next_at)  # `next_at` is due, even if the clock was read before it
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
    """Return the last tick until now. Searches backwards, because there may have been very many."""
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
