"""Families of metrics, as Prometheus text and as processes exchange them. Written by prometheus-client."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from fairlane.queue_counters import SERIES_MAX

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["CONTENT_TYPE", "OTHER", "SERIES_MAX", "Families", "Flat", "Labels", "capped"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OTHER: Final = "__other__"
"""Name that sums up all names beyond the limit."""
Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float]]
Flat = tuple[str, str, str, list[tuple[str, Labels, int | float]]]
"""Name, help, kind and samples of a family, as processes exchange it."""


class Histogram(Protocol):
    """Counted durations."""

    count: int
    seconds: float

    def histogram(self, first: int, upto: int) -> Iterator[tuple[float, int]]:
        """Yield (seconds, number of durations below) for the buckets from `first` to `upto`."""


class MetricSample(NamedTuple):
    """A sample, with the attributes that prometheus-client reads."""

    name: str
    labels: Labels
    value: float
    timestamp: None = None
    exemplar: None = None


@dataclass
class MetricFamily:
    """All samples of a metric."""

    name: str
    help: str
    kind: str
    samples: list[MetricSample] = field(default_factory=list)


def capped(names: Iterable[str], most: int = SERIES_MAX) -> dict[str, str]:
    """Return the label of each name: its own for the first `most` names, and a common one for the rest."""
    return {name: name if number < most else OTHER for number, name in enumerate(names)}


class Families:
    """Families of metrics, in the order in which they are added.

    Samples of a family with equal labels are combined: summed, unless `join` says otherwise.
    """

    def __init__(self) -> None:
        self._found: dict[str, MetricFamily] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as prometheus-client has them.

        The library is imported with the first scrape, because importing it takes a tenth of the CPU time of a start.
        """
        from prometheus_client import Metric

        for family in self._found.values():
            metric = Metric(family.name, family.help, family.kind)
            metric.samples = family.samples  # type: ignore[assignment]
            yield metric

    def gauge(
        self, name: str, help: str, value: float | Samples, join: Callable[[float, float], float] = operator.add
    ) -> None:
        self._add(f"fairlane_{name}", "gauge", help, value, join)

    def counter(self, name: str, help: str, value: float | Samples) -> None:
        self._add(f"fairlane_{name}", "counter", help, value, operator.add)

    def standard(self, name: str, kind: str, help: str, value: float) -> None:
        """Add a metric that every program exposes under the same name, such as `process_open_fds`."""
        self._add(name, kind, help, value, operator.add)

    def _add(
        self, name: str, kind: str, help: str, value: float | Samples, join: Callable[[float, float], float]
    ) -> None:
        some = [({}, value)] if isinstance(value, int | float) else value
        joined: dict[tuple[str, ...], MetricSample] = {}
        for labels, one in some:
            known = joined.get(key := tuple(labels.values()))
            joined[key] = MetricSample(name, labels, one if known is None else join(known.value, one))
        self._samples(name, help, kind).extend(joined.values())

    def histogram(
        self, name: str, help: str, series: Iterable[tuple[Labels, Histogram]], first: int = 5, upto: int = 25
    ) -> None:
        name = f"fairlane_{name}"
        samples = self._samples(name, help, "histogram")
        for labels, of in series:
            bounds = [*((repr(bound), below) for bound, below in of.histogram(first, upto)), ("+Inf", of.count)]
            samples += [MetricSample(f"{name}_bucket", {**labels, "le": bound}, below) for bound, below in bounds]
            samples += [
                MetricSample(f"{name}_sum", labels, of.seconds),
                MetricSample(f"{name}_count", labels, of.count),
            ]

    def add(self, families: Iterable[Flat], labels: Labels) -> None:
        """Add the metrics of another process, with these labels added to each sample."""
        for name, help, kind, samples in families:
            self._samples(name, help, kind).extend(
                [MetricSample(one, {**labels, **own}, value) for one, own, value in samples]
            )

    def flat(self) -> list[Flat]:
        return [
            (each.name, each.help, each.kind, [(one.name, one.labels, one.value) for one in each.samples])
            for each in self._found.values()
        ]

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        registry: Any = self
        return generate_latest(registry)

    async def written(self) -> bytes:
        """Return the text. Yields to other tasks after each family, because a thousand queues take ten milliseconds."""
        parts = []
        for name, family in self._found.items():
            one = Families()
            one._found[name] = family
            parts.append(one.text())
            await asyncio.sleep(0)
        return b"".join(parts)

    def _samples(self, name: str, help: str, kind: str) -> list[MetricSample]:
        name = name.removesuffix("_total")  # written counters get the suffix again
        return self._found.setdefault(name, MetricFamily(name, help, kind)).samples
