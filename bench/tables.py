"""Tables of results for the console and for Markdown pages, and the JSON file with every round."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import table

from bench.plots import chart
from bench.results import MESSAGES, Comparison, Results, Row
from bench.suite import Section

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
WIDTH = 100
"""Prose of a page is wrapped at this many characters."""
ROWS = (
    "workload",
    "system",
    "per second (range)",
    "CPU µs: client + broker + store",
    "p50 / p99 ms",
    "peak MB: broker + store",
)
COMPARISONS = ("workload", "compared with", "PostgreSQL", "SQLite")
READING = (
    "Each chart shows the rates of all systems. The thin line in a bar goes from the lowest to the highest round. The "
    "first table below a chart divides the figure of Fairlane by that of another system. A result below 1 is bold: "
    "Fairlane is slower there. The HTTP ceiling is a limit, so nothing can be above 1."
)
LEGEND = (
    "Rates are messages per second unless the row says otherwise: the median over the rounds, with the lowest and "
    "highest round in parentheses. CPU is microseconds per message. Memory is the peak of the processes since they "
    "started. A dash means that the figure was not measured or does not exist."
)


@dataclass
class Table:
    """A table that renders itself for the console or as Markdown."""

    title: str
    heads: Sequence[str]
    rows: Iterable[Sequence[str]]
    caption: str = ""

    def console(self) -> table.Table:
        made = table.Table(
            *self.heads, title=self.title, title_justify="left", caption=self.caption, caption_justify="left"
        )
        for row in self.rows:
            made.add_row(*row)
        return made

    def markdown(self) -> str:
        lines = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass
class Report:
    """Results so far, with the command that measured them and `facts` about the machine, one sentence each."""

    command: str
    facts: list[str]
    measured: list[tuple[Section, Results]] = field(default_factory=list)

    def comparison_table(self) -> Table:
        found = [comparison for _, results in self.measured for comparison in results.comparisons]
        return comparisons_of(found)

    def markdown(self) -> str:
        """Return the figures as part of a page."""
        parts = [f"Measured by `{self.command}`.", "\n".join(bullet(fact) for fact in self.facts)]
        parts += ["### How to read them", paragraph(READING), paragraph(LEGEND)]
        for section, results in self.measured:
            parts += [f"### {section.title}", paragraph(section.conditions)]
            parts.append(f"![{section.title}: bars of the rates in the tables below]({image_of(section)})")
            if results.comparisons:
                parts.append(comparisons_of(results.comparisons).markdown())
            parts.append(section_table(section, results).markdown())
            parts += [paragraph(note) for note in results.notes]
        return "\n\n".join(parts) + "\n"

    def write_charts(self, directory: Path) -> None:
        """Write the chart of each section below a directory, where the links of `markdown` lead."""
        for section, results in self.measured:
            file = directory / image_of(section)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(chart(section, results), encoding="utf-8")

    def json(self) -> str:
        sections: list[dict[str, Any]] = [
            {
                "name": section.name,
                "conditions": section.conditions,
                "notes": results.notes,
                "comparisons": [comparison._asdict() for comparison in results.comparisons],
                "rows": [
                    {
                        "workload": row.workload,
                        "system": row.system,
                        "unit": row.unit,
                        "rounds": [measured._asdict() for measured in row.rounds],
                    }
                    for row in results.grouped()
                ],
            }
            for section, results in self.measured
        ]
        return json.dumps({"command": self.command, "facts": self.facts, "sections": sections}, indent=1) + "\n"


def section_table(section: Section, results: Results) -> Table:
    return Table(section.title, ROWS, [row_cells(row) for row in results.grouped()], section.conditions)


def comparisons_of(found: Iterable[Comparison]) -> Table:
    return Table("Comparisons", COMPARISONS, comparison_rows(found), READING)


def comparison_rows(found: Iterable[Comparison]) -> list[list[str]]:
    """Return one row for both stores, with the rest of the system's name in the workload."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for one in found:
        _, store, *rest = one.system.split(", ")
        rows.setdefault((", ".join([one.label, *rest]), one.basis), {})[store] = _compared(one)
    return [[*key, *(cells.get(store, "-") for store in COMPARISONS[2:])] for key, cells in rows.items()]


def _compared(one: Comparison) -> str:
    if one.value is None:
        return "-"
    text = f"{figure(one.value)}{one.unit}"
    return f"**{text}**" if one.value < 1 and "ceiling" not in one.basis else text


def image_of(section: Section) -> str:
    return f"images/bench-{section.name}.svg"


def row_cells(row: Row) -> list[str]:
    return [
        row.workload,
        row.system,
        _rate(row),
        _joined(row, "client_us", "broker_us", "store_us"),
        _joined(row, "p50", "p99", between=" / "),
        _joined(row, "broker_peak", "store_peak", by=1e-6),
    ]


def figure(value: float) -> str:
    """Format a number with three significant digits, or with all digits before the point."""
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 1 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rate(row: Row) -> str:
    rates = row.all("rate")
    if not rates:
        return "-"
    unit = "" if row.unit == MESSAGES else f" {row.unit}"
    spread = f" ({figure(min(rates))} to {figure(max(rates))})" if len(rates) > 1 else ""
    return f"{_shown(row.median('rate'))}{unit}{spread}"


def _shown(value: float | None, by: float = 1.0) -> str:
    return "-" if value is None else figure(value * by)


def _joined(row: Row, *names: str, between: str = " + ", by: float = 1.0) -> str:
    cells = [_shown(row.median(name), by) for name in names]
    return "-" if set(cells) == {"-"} else between.join(cells)


def paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def bullet(text: str) -> str:
    return textwrap.fill(f"- {text}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def write_between_marks(page: Path, text: str) -> None:
    """Replace the text between the two marks of the page."""
    old = page.read_text(encoding="utf-8")
    new, count = re.subn(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n\n{text}\n{END}", old, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"{page} must have {BEGIN} and {END} once, but has them {count} times")
    page.write_text(new, encoding="utf-8")
