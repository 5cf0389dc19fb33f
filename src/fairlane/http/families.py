"""Families of metrics: collected by each process, put together, and written by prometheus-client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

__all__ = ["CONTENT_TYPE", "Families", "Flat", "Histogram"]

Labels = dict[str, str]
Histogram = tuple[list[tuple[float, int]], int, float]
"""(bound, how many are not above it), how many there are, and their sum."""
Flat = tuple[str, str, str, list[tuple[str, Labels, int | float]]]
"""Name, help, kind and samples of a family, as one process sends it to another."""


class Families(Collector):
    """Families of metrics, collected in the order in which they come."""

    def __init__(self) -> None:
        self._found: dict[str, Metric] = {}

    def collect(self) -> Iterator[Metric]:
        return iter(self._found.values())

    def family(self, name: str, kind: str, help: str, samples: Iterable[tuple[Labels, float]]) -> None:
        name = f"fairlane_{name}"
        self._samples(name, help, kind).extend([Sample(name, labels, value) for labels, value in samples])

    def one(self, name: str, kind: str, help: str, value: float) -> None:
        self.family(name, kind, help, [({}, value)])

    def histogram(self, name: str, help: str, series: Iterable[tuple[Labels, Histogram]]) -> None:
        name = f"fairlane_{name}"
        samples = self._samples(name, help, "histogram")
        for labels, (found, count, total) in series:
            for bound, below in [*found, (float("inf"), count)]:
                text = "+Inf" if bound == float("inf") else repr(bound)
                samples.append(Sample(f"{name}_bucket", {**labels, "le": text}, below))
            samples += [Sample(f"{name}_sum", labels, total), Sample(f"{name}_count", labels, count)]

    def add(self, families: Iterable[Flat], labels: Labels) -> None:
        """What another process counted, each sample with these labels too."""
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
        """The text, with a pause after each family: a thousand queues take ten milliseconds."""
        parts = []
        for name, metric in self._found.items():
            one = Families()
            one._found[name] = metric
            parts.append(one.text())
            await asyncio.sleep(0)
        return b"".join(parts)

    def _samples(self, name: str, help: str, kind: str) -> list[Sample]:
        name = name.removesuffix("_total")  # which a counter gets again when it is written
        return self._found.setdefault(name, Metric(name, help, kind)).samples
