"""Families of metrics: collected by each process, put together, and written in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Histogram = tuple[list[tuple[float, int]], int, float]
"""(bound, how many are not above it), how many there are, and their sum."""


class Sample(msgspec.Struct, array_like=True):
    suffix: str
    """Of the name, in a histogram."""
    labels: dict[str, str]
    value: int | float


class Family(msgspec.Struct, array_like=True):
    name: str
    kind: str
    help: str
    samples: list[Sample]


class Families:
    """Collects families, in the order in which they are told."""

    def __init__(self) -> None:
        self.found: list[Family] = []

    def family(self, name: str, kind: str, help: str, samples: Iterable[tuple[Labels, float]]) -> None:
        self.found.append(Family(name, kind, help, [Sample("", dict(labels), value) for labels, value in samples]))

    def one(self, name: str, kind: str, help: str, value: float) -> None:
        self.family(name, kind, help, [({}, value)])

    def histogram(self, name: str, help: str, series: Iterable[tuple[Labels, Histogram]]) -> None:
        samples: list[Sample] = []
        for labels, (found, count, total) in series:
            for bound, below in [*found, (float("inf"), count)]:
                text = "+Inf" if bound == float("inf") else repr(bound)
                samples.append(Sample("_bucket", {**labels, "le": text}, below))
            samples.append(Sample("_sum", dict(labels), total))
            samples.append(Sample("_count", dict(labels), count))
        self.found.append(Family(name, "histogram", help, samples))


def together(processes: Mapping[int, Iterable[Family]]) -> list[Family]:
    """The families of several processes, each sample labelled with the number of its own: so a process that begins
    anew is a counter that does."""
    merged: dict[str, Family] = {}
    for number, families in processes.items():
        for family in families:
            known = merged.setdefault(family.name, Family(family.name, family.kind, family.help, []))
            known.samples += [
                Sample(one.suffix, {"worker": str(number), **one.labels}, one.value) for one in family.samples
            ]
    return list(merged.values())


def written(families: Iterable[Family]) -> bytes:
    lines: list[str] = []
    for family in families:
        name = f"fairlane_{family.name}"
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
        lines += [f"{name}{one.suffix}{_labels(one.labels)} {_number(one.value)}" for one in family.samples]
    return ("\n".join(lines) + "\n").encode()


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
