"""CPU, bytes written and peak memory of processes and their children, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    cpu_seconds: float
    written_bytes: int
    peak_bytes: int


def usage_of(pids: Iterable[int]) -> dict[int, Usage]:
    """Return the usage of these processes and all their descendants, each since it started.

    The usage of a child that has ended is part of its parent's.
    """
    return {one: used for pid in pids for one in family_of(pid) if (used := _of_one(one)) is not None}


def difference(before: dict[int, Usage], after: dict[int, Usage]) -> Usage:
    """Return what all processes together used between two samples."""
    cpu = sum(used.cpu_seconds for used in after.values()) - sum(used.cpu_seconds for used in before.values())
    written = sum(used.written_bytes for used in after.values()) - sum(used.written_bytes for used in before.values())
    return Usage(cpu, written, sum(used.peak_bytes for used in after.values()))


def family_of(pid: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return family


def _of_one(pid: int) -> Usage | None:
    proc = Path("/proc", str(pid))
    try:
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        written = dict(line.split(": ") for line in (proc / "io").read_text().splitlines())["write_bytes"]
        status = (proc / "status").read_text()
    except OSError:
        return None
    peak = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
    return Usage(sum(map(int, fields[11:15])) / _TICKS, int(written), peak)
