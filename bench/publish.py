"""The results of `python -m bench`: tables for the console and for a page, and JSON with every round."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.markup import render
from rich.table import Table

from bench.figures import Findings, Row, Target, figure
from bench.suite import Section

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
TARGETS = ("target", "system", "measured", "wanted", "", "what is measured")
ROWS = (
    "workload",
    "system",
    "a second",
    "lowest to highest",
    "CPU us client + broker + store",
    "bytes written",
    "bytes of WAL",
    "flushes per 1,000",
    "p50 / p99 / p99.9 ms",
    "peak MB broker + store",
)
LEGEND = (
    "Medians over the rounds; lowest to highest of them beside. CPU, bytes written by broker and store, bytes of "
    "PostgreSQL's WAL and flushes of the disk are those of one message (flushes: of a thousand), peaks of memory "
    "those of the processes since they began. A dash stands for what was not measured or is not there."
)


@dataclass
class Report:
    """What was measured so far, and where, when and how: `facts` are sentences."""

    command: str
    facts: list[str]
    found: list[tuple[Section, Findings]] = field(default_factory=list)
    more: list[Target] = field(default_factory=list)
    """Targets that are about all sections."""

    @property
    def targets(self) -> list[Target]:
        return [target for _, findings in self.found for target in findings.targets] + self.more

    @property
    def summary(self) -> str:
        held = sum(target.holds for target in self.targets)
        measured = sum(target.value is not None for target in self.targets)
        return f"{held} of {measured} targets hold; {len(self.targets) - measured} could not be measured."

    def markdown(self) -> str:
        """A part of a page."""
        parts = [f"Measured by `{self.command}`.", "\n".join(f"- {fact}" for fact in self.facts)]
        parts += ["### Targets", self.summary, _markdown(TARGETS, map(target_cells, self.targets))]
        for section, findings in self.found:
            parts += [f"### {section.title}", section.conditions]
            parts.append(_markdown(ROWS, map(row_cells, findings.grouped())))
            parts += findings.notes
        parts += ["### What the columns mean", LEGEND]
        return "\n\n".join(parts) + "\n"

    def json(self) -> str:
        sections: list[dict[str, Any]] = [
            {
                "name": section.name,
                "conditions": section.conditions,
                "notes": findings.notes,
                "rows": [
                    {
                        "workload": row.workload,
                        "system": row.system,
                        "unit": row.unit,
                        "rounds": [run._asdict() for run in row.runs],
                    }
                    for row in findings.grouped()
                ],
            }
            for section, findings in self.found
        ]
        targets = [{**target._asdict(), "holds": target.holds} for target in self.targets]
        told = {"command": self.command, "facts": self.facts, "targets": targets, "sections": sections}
        return json.dumps(told, indent=1) + "\n"


def target_cells(target: Target) -> list[str]:
    return [target.label, target.system, target.measured, target.wanted, target.verdict, target.basis]


def row_cells(row: Row) -> list[str]:
    rates = row.all("rate")
    return [
        row.workload,
        row.system,
        f"{_shown(row.median('rate'))} {row.unit}" if rates else "-",
        f"{figure(min(rates))} to {figure(max(rates))}" if rates else "-",
        _joined(row, "client_us", "broker_us", "store_us"),
        _shown(row.median("written")),
        _shown(row.median("wal")),
        _shown(row.median("flushes"), 1000),
        _joined(row, "p50", "p99", "p999", between=" / "),
        _joined(row, "broker_peak", "store_peak", by=1e-6),
    ]


def _shown(value: float | None, by: float = 1.0) -> str:
    return "-" if value is None else figure(value * by)


def _joined(row: Row, *names: str, between: str = " + ", by: float = 1.0) -> str:
    """Nothing but dashes is one."""
    cells = [_shown(row.median(name), by) for name in names]
    return "-" if set(cells) == {"-"} else between.join(cells)


def target_table(targets: Sequence[Target]) -> Table:
    table = Table(*TARGETS, title="Targets", title_justify="left")
    for target in targets:
        table.add_row(*target_cells(target))
    return table


def section_table(section: Section, findings: Findings) -> Table:
    table = Table(*ROWS, title=section.title, title_justify="left", caption=section.conditions, caption_justify="left")
    for row in findings.grouped():
        table.add_row(*row_cells(row))
    return table


def _markdown(heads: Sequence[str], rows: Iterator[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([render(cell).plain for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_between_marks(page: Path, text: str) -> None:
    """Put the text where the page has its marks."""
    old = page.read_text(encoding="utf-8")
    new, count = re.subn(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n\n{text}\n{END}", old, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"{page} has to have {BEGIN} and {END} once, but has them {count} times")
    page.write_text(new, encoding="utf-8")
