"""The history: samples of queues and groups by minute, kept for 30 days.

Each process inserts its own samples, so that a repeated call changes nothing. Once an hour is over, the samples of each
subject are merged and packed into one compressed row, because rows of single minutes take ten times the space.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fairlane.model.history import MinuteSample, Subject
from fairlane.store.families.query import DatabaseTransaction, Family

_HOUR = 60
_encode = msgspec.msgpack.Encoder().encode
_sample = msgspec.msgpack.Decoder(MinuteSample).decode
_hour = msgspec.msgpack.Decoder(dict[int, MinuteSample]).decode
Series = dict[int, MinuteSample]
"""Samples by minute since 1970."""


class History(Family):
    async def add(self, writer: int, samples: Mapping[tuple[Subject, int], MinuteSample]) -> None:
        """Store samples by subject and minute. A repeated call of the same writer replaces them."""
        keys = sorted(samples)
        await self._runner.write(
            "history.add",
            writer=writer,
            subjects=[subject for subject, _ in keys],
            minutes=[minute for _, minute in keys],
            data=[_encode(samples[key]) for key in keys],
        )

    async def read(self, subjects: Sequence[Subject], *, since: int, until: int) -> dict[Subject, Series]:
        """Return the samples of the minutes from `since` to `until` - 1. Subjects without any are missing."""
        rows = await self._runner.read(
            "history.read",
            subjects=list(subjects),
            since=since,
            until=until,
            since_hour=since // _HOUR,
        )
        found: dict[Subject, Series] = {}
        for subject, at, packed, data in rows:
            series = found.setdefault(subject, {})
            for minute, sample in _samples(at, packed, data):
                if since <= minute < until:
                    _merge(series, minute, sample)
        return {subject: series for subject, series in found.items() if series}

    async def pack(self, before: int, *, limit: int = 50) -> bool:
        """Pack the hours that ended by the minute `before`, of up to `limit` subjects.

        Returns True if more may be left.
        """
        before -= before % _HOUR
        subjects = [subject for (subject,) in await self._runner.read("history.unpacked", before=before, limit=limit)]

        async def work(transaction: DatabaseTransaction) -> None:
            await transaction.lock("history.lock")
            hours: dict[tuple[Subject, int], Series] = {}
            for subject, minute, data in await transaction.run("history.take", subjects=subjects, before=before):
                _merge(hours.setdefault((subject, minute // _HOUR), {}), minute, _sample(data))
            for subject, hour, data in await transaction.run("history.packed", subjects=subjects, hours=_hours(hours)):
                if (subject, hour) in hours:  # samples that came late
                    for minute, sample in _samples(hour, True, data):
                        _merge(hours[subject, hour], minute, sample)
            keys = sorted(hours)
            columns: dict[str, Any] = {
                "subjects": [subject for subject, _ in keys],
                "hours": [hour for _, hour in keys],
                "data": [zlib.compress(_encode(_offsets(hours[key]))) for key in keys],
            }
            await transaction.run("history.pack", **columns)

        if subjects:
            await self._runner.transact(work)
        return len(subjects) == limit

    async def forget(self, before: int) -> None:
        """Delete the hours that ended by the minute `before`."""
        await self._runner.write("history.forget", before=before // _HOUR)


def _samples(at: int, packed: bool, data: bytes) -> list[tuple[int, MinuteSample]]:
    """Return the samples of a row, which is a minute or a packed hour."""
    if not packed:
        return [(at, _sample(data))]
    return [(at * _HOUR + offset, sample) for offset, sample in _hour(zlib.decompress(data)).items()]


def _merge(series: Series, minute: int, sample: MinuteSample) -> None:
    if (known := series.get(minute)) is None:
        series[minute] = sample
    else:
        known.add(sample)


def _offsets(series: Series) -> Series:
    return {minute % _HOUR: series[minute] for minute in sorted(series)}


def _hours(keys: Iterable[tuple[Subject, int]]) -> list[int]:
    return sorted({hour for _, hour in keys})
