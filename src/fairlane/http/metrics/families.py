"""Families of metrics, as Prometheus text and as processes exchange them. Written by prometheus-client."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from fairlane.queue_counters import SERIES_MAX

__all__ = ["CONTENT_TYPE", "OTHER", "SERIES_MAX", "Families", "Flat", "Labels", "capped"]

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


def capped(names: Iterable[str], most: int = SERIES_MAX) -> dict[str, str]:
    """Return the label of each name: its own for the first `most` names, and a common one for the rest."""
    return {name: name if number < most else OTHER for number, name in enumerate(names)}


class Families(Collector):
    """Families of metrics, in the order in which they are added.

    Samples of a family with equal labels are combined: summed, unless `join` says otherwise.
    """

    def __init__(self) -> None:
        self._found: dict[str, Metric] = {}

    def collect(self) -> Iterator[Metric]:
        return iter(self._found.values())

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
        joined: dict[tuple[str, ...], Sample] = {}
        for labels, one in some:
            known = joined.get(key := tuple(labels.values()))
            joined[key] = Sample(name, labels, one if known is None else join(known.value, one))
        self._samples(name, help, kind).extend(joined.values())

    def histogram(
        self, name: str, help: str, series: Iterable[tuple[Labels, Histogram]], first: int = 5, upto: int = 25
    ) -> None:
        name = f"fairlane_{name}"
        samples = self._samples(name, help, "histogram")
        for labels, of in series:
            bounds = [*((repr(bound), below) for bound, below in of.histogram(first, upto)), ("+Inf", of.count)]
            samples += [Sample(f"{name}_bucket", {**labels, "le": bound}, below) for bound, below in bounds]
            samples += [Sample(f"{name}_sum", labels, of.seconds), Sample(f"{name}_count", labels, of.count)]

    def add(self, families: Iterable[Flat], labels: Labels) -> None:
        """Add the metrics of another process, with these labels added to each sample."""
        for name, help, kind, samples in families:
            self._samples(name, help, kind).extend(
                [Sample(one, {**labels, **own}, value) for one, own, value in samples]
            )

    def flat(self) -> list[Flat]:
        return [
            (each.name, each.documentation, each.type, [(one.name, one.labels, one.value) for one in each.samples])
            for each in self.collect()
        ]

    def text(self) -> bytes:
        return generate_latest(self)

    async def written(self) -> bytes:
        """Return the text. Yields to other tasks after each family, because a thousand queues take ten milliseconds."""
        parts = []
        for name, metric in self._found.items():
            one = Families()
            one._found[name] = metric
            parts.append(one.text())
            await asyncio.sleep(0)
        return b"".join(parts)

    def _samples(self, name: str, help: str, kind: str) -> list[Sample]:
        name = name.removesuffix("_total")  # written counters get the suffix again
        return self._found.setdefault(name, Metric(name, help, kind)).samples
