"""What is found: runs, rows of runs, targets."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.report import verdict


class Run(NamedTuple):
    """One round of one workload; None is what was not measured, or cannot be. CPU, bytes and flushes are those of one
    message, times are milliseconds of one call."""

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
        """CPU of broker and store."""
        known = [one for one in (self.broker_us, self.store_us) if one is not None]
        return sum(known) if known else None


@dataclass
class Row:
    workload: str
    system: str
    unit: str = "messages"
    """Of the rate, a second."""
    runs: list[Run] = field(default_factory=list)

    def all(self, name: str) -> list[float]:
        return [value for run in self.runs if (value := getattr(run, name)) is not None]

    def median(self, name: str) -> float | None:
        found = self.all(name)
        return statistics.median(found) if found else None


class Target(NamedTuple):
    """`value` is None when something that it takes was missing, and `basis` says what it is made of."""

    label: str
    system: str
    value: float | None
    bound: float
    unit: str = ""
    at_most: bool = False
    aim: float | None = None
    basis: str = ""

    @property
    def holds(self) -> bool:
        return self.value is not None and (self.value <= self.bound if self.at_most else self.value >= self.bound)

    @property
    def measured(self) -> str:
        return "-" if self.value is None else f"{figure(self.value)}{self.unit}"

    @property
    def wanted(self) -> str:
        aim = "" if self.aim is None else f", aim {figure(self.aim)}"
        return f"{'at most' if self.at_most else 'at least'} {figure(self.bound)}{self.unit}{aim}"

    @property
    def verdict(self) -> str:
        """With the colours of a console."""
        if self.value is None:
            return "[bold red]NOT MEASURED[/]"
        return verdict(self.value, self.bound, at_most=self.at_most)


@dataclass
class Findings:
    """Of one section."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def grouped(self) -> list[Row]:
        """Rows of one workload beside each other."""
        order = list(dict.fromkeys(row.workload for row in self.rows.values()))
        return sorted(self.rows.values(), key=lambda row: order.index(row.workload))

    def add(self, workload: str, system: str, run: Run, *, unit: str = "messages") -> None:
        self.rows.setdefault((workload, system), Row(workload, system, unit)).runs.append(run)

    def median(self, workload: str, system: str, name: str = "rate") -> float | None:
        row = self.rows.get((workload, system))
        return row.median(name) if row else None

    def ratio(self, mine: tuple[str, str], other: tuple[str, str], name: str = "rate") -> float | None:
        """Of two medians; None if one is missing."""
        return quotient(self.median(*mine, name), self.median(*other, name))


def figure(value: float) -> str:
    """As many digits as mean something."""
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 1 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def quotient(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None
