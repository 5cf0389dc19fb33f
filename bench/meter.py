"""The cost of a run per message: CPU, bytes written, disk flushes. Unlike rates, it hardly depends on other load."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.results import Measurement
from bench.systems import Running
from bench.usage import Usage, difference, usage_of

_FLUSHES_TRIED = 20
_FLUSHES_FIELD = 18


class _Sample(NamedTuple):
    broker: dict[int, Usage]
    store: dict[int, Usage]
    wal: float | None
    flushes: int | None


class Meter:
    """Measures the processes of a system between `begin` and `end`.

    `device` is the disk whose flushes are counted. None if the kernel does not count them.
    """

    def __init__(self, running: Running, device: str | None) -> None:
        self._running = running
        self._device = device
        self._began: _Sample
        self._ended: _Sample

    async def begin(self) -> None:
        wal = await self._wal()
        self._began = self._sample(wal)

    async def end(self) -> None:
        sample = self._sample(None)
        self._ended = sample._replace(wal=await self._wal())

    def cost(self, messages: float) -> Measurement:
        """Return the cost per message of a run that processed this many."""
        began, ended, count = self._began, self._ended, max(1.0, messages)
        broker, store = difference(began.broker, ended.broker), difference(began.store, ended.store)
        return Measurement(
            broker_us=broker.cpu_seconds / count * 1e6 if self._running.broker else None,
            store_us=store.cpu_seconds / count * 1e6 if self._running.store else None,
            written=(broker.written_bytes + store.written_bytes) / count if began.broker or began.store else None,
            wal=None if began.wal is None or ended.wal is None else (ended.wal - began.wal) / count,
            flushes=None if began.flushes is None or ended.flushes is None else (ended.flushes - began.flushes) / count,
            broker_peak=broker.peak_bytes if self._running.broker else None,
            store_peak=store.peak_bytes if self._running.store else None,
        )

    def _sample(self, wal: float | None) -> _Sample:
        flushes = None if self._device is None else _flushes_of(self._device)
        return _Sample(usage_of(self._running.broker), usage_of(self._running.store), wal, flushes)

    async def _wal(self) -> float | None:
        """Return how many bytes PostgreSQL has written to its log so far."""
        if self._running.server is None:
            return None
        async with self._running.server.connect() as admin:
            return float(await admin.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


def _flushes_of(device: str) -> int:
    """Return the number of flushes of the disk, by all processes."""
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[2] == device:
            return int(fields[_FLUSHES_FIELD])
    raise LookupError(device)


def flushed_device(directory: Path) -> str | None:
    """Return the disk of this directory, found by flushing it. None if the kernel does not count its flushes."""
    stats = Path("/proc/diskstats")
    if not stats.exists():
        return None
    devices = [fields[2] for line in stats.read_text().splitlines() if len(fields := line.split()) > _FLUSHES_FIELD]
    before = {device: _flushes_of(device) for device in devices}
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_FLUSHES_TRIED):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    increase = {device: _flushes_of(device) - before[device] for device in devices}
    found = max(devices, key=lambda device: increase[device], default=None)
    return found if found is not None and increase[found] >= _FLUSHES_TRIED else None
