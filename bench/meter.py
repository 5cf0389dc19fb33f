"""What a run costs, by message: CPU, bytes, flushes of the disk. That is stable where rates depend on who else works
here."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.figures import Run
from bench.systems import Running
from bench.usage import Usage, difference, usage_of

_FLUSHES_TRIED = 20
_FLUSHES_FIELD = 18
_STEAL_FIELD = 8


class _Mark(NamedTuple):
    broker: dict[int, Usage]
    store: dict[int, Usage]
    wal: float | None
    flushes: int | None


class Meter:
    """Between `begin` and `end`, of what runs: `device` is the disk's, None where it does not tell of flushes."""

    def __init__(self, running: Running, device: str | None) -> None:
        self._running = running
        self._device = device
        self._began: _Mark
        self._ended: _Mark

    async def begin(self) -> None:
        wal = await self._wal()
        self._began = self._mark(wal)

    async def end(self) -> None:
        mark = self._mark(None)
        self._ended = mark._replace(wal=await self._wal())

    def cost(self, messages: float) -> Run:
        """Of each of so many messages."""
        began, ended, count = self._began, self._ended, max(1.0, messages)
        broker, store = difference(began.broker, ended.broker), difference(began.store, ended.store)
        return Run(
            broker_us=broker.cpu_seconds / count * 1e6 if self._running.broker else None,
            store_us=store.cpu_seconds / count * 1e6 if self._running.store else None,
            written=(broker.written_bytes + store.written_bytes) / count if began.broker or began.store else None,
            wal=None if began.wal is None or ended.wal is None else (ended.wal - began.wal) / count,
            flushes=None if began.flushes is None or ended.flushes is None else (ended.flushes - began.flushes) / count,
            broker_peak=broker.peak_bytes if self._running.broker else None,
            store_peak=store.peak_bytes if self._running.store else None,
        )

    def _mark(self, wal: float | None) -> _Mark:
        flushes = None if self._device is None else flushes_of(self._device)
        return _Mark(usage_of(self._running.broker), usage_of(self._running.store), wal, flushes)

    async def _wal(self) -> float | None:
        """Bytes of PostgreSQL's log so far."""
        if self._running.server is None:
            return None
        async with self._running.server.connect() as admin:
            return float(await admin.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


def flushes_of(device: str) -> int:
    """Times that the disk was told to keep what it has, by anybody."""
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[2] == device:
            return int(fields[_FLUSHES_FIELD])
    raise LookupError(device)


def flushed_device(directory: Path) -> str | None:
    """The disk below this directory, if the kernel counts its flushes: the one whose count an fsync moves."""
    stats = Path("/proc/diskstats")
    if not stats.exists():
        return None
    devices = [fields[2] for line in stats.read_text().splitlines() if len(fields := line.split()) > _FLUSHES_FIELD]
    before = {device: flushes_of(device) for device in devices}
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_FLUSHES_TRIED):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    moved = {device: flushes_of(device) - before[device] for device in devices}
    found = max(devices, key=lambda device: moved[device], default=None)
    return found if found is not None and moved[found] >= _FLUSHES_TRIED else None


def processor_ticks() -> tuple[int, int]:
    """Of all processors: in all, and taken by other guests of the same host."""
    stats = Path("/proc/stat")
    if not stats.exists():
        return 0, 0
    fields = [int(field) for field in stats.read_text().splitlines()[0].split()[1:]]
    return sum(fields[:_STEAL_FIELD]), fields[_STEAL_FIELD - 1]
