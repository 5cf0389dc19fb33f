"""Results of a benchmark: measurements, rows of measurements, comparisons between rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MESSAGES = "messages"
"""The default unit of a rate."""


class Measurement(NamedTuple):
    """One round of one workload. None means that a figure was not measured.

    CPU, bytes and flushes are per message. Latencies are milliseconds per call. Peaks are bytes of memory.
    """

    rate: float | None = None
    client_us: float | None = None
    broker_us: float | None = None
    store_us: float | None = None
    written: float | None = None
    wal: float | None = None
    flushes: float | None = None
    p50: float | None = None
    p99: float | None = None
    p999: float | None = None
    broker_peak: float | None = None
    store_peak: float | None = None

    @property
    def servers_us(self) -> float | None:
        """CPU of broker and store together."""
        known = [one for one in (self.broker_us, self.store_us) if one is not None]
        return sum(known) if known else None


@dataclass
class Row:
    """All rounds of one workload on one system. `unit` is what the rate counts."""

    workload: str
    system: str
    unit: str = MESSAGES
    rounds: list[Measurement] = field(default_factory=list)

    def all(self, name: str) -> list[float]:
        return [value for one in self.rounds if (value := getattr(one, name)) is not None]

    def median(self, name: str) -> float | None:
        values = self.all(name)
        return statistics.median(values) if values else None


class Comparison(NamedTuple):
    """A figure of Fairlane divided by that of another system. `value` is None if either was not measured."""

    label: str
    system: str
    value: float | None
    basis: str
    unit: str = "x"


@dataclass
class Results:
    """Everything one section measured."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def grouped(self) -> list[Row]:
        """Return the rows with all systems of one workload together."""
        order = list(dict.fromkeys(row.workload for row in self.rows.values()))
        return sorted(self.rows.values(), key=lambda row: order.index(row.workload))

    def add(self, workload: str, system: str, measured: Measurement, *, unit: str = MESSAGES) -> None:
        self.rows.setdefault((workload, system), Row(workload, system, unit)).rounds.append(measured)

    def median(self, workload: str, system: str, name: str = "rate") -> float | None:
        row = self.rows.get((workload, system))
        return row.median(name) if row else None

    def ratio(self, mine: tuple[str, str], other: tuple[str, str], name: str = "rate") -> float | None:
        """Return the ratio of two medians, or None if either is missing."""
        return quotient(self.median(*mine, name), self.median(*other, name))

    def compare(self, workload: str, systems: Sequence[str], other: str) -> None:
        """Compare the rates of these systems with that of another one, if that was measured."""
        for system in systems if (workload, other) in self.rows else ():
            value = self.ratio((workload, system), (workload, other))
            self.comparisons.append(Comparison(workload, system, value, f"rate of {other}"))


def quotient(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def percentiles(values: list[float]) -> tuple[float, float, float]:
    """Return the 50th, 99th and 99.9th percentile; the list may be in any order but not empty."""
    ordered = sorted(values)
    last = len(ordered) - 1
    p50, p99, p999 = (ordered[min(last, int(share * len(ordered)))] for share in (0.5, 0.99, 0.999))
    return p50, p99, p999
