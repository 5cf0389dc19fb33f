"""Bar charts of results, as SVG that is readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from bench.results import Results, Row
from bench.suite import Section

WIDTH = 760
_LABEL, _BAR, _GAP = 216, 400, 8
_LINE, _HEAD, _PAD = 22, 30, 16
_LETTER = 7.0
"""Approximate width of a letter."""
STYLE = """
    .card { fill: #ffffff; stroke: #d8dee4 } text { fill: #24292f; font: 13px system-ui, sans-serif }
    .head { font-weight: 600 } .postgres { fill: #1d5fd1 } .sqlite { fill: #0f8a72 } .other { fill: #9aa4af }
    .limit { fill: #dfe3e8 } .range { stroke: #24292f }
    @media (prefers-color-scheme: dark) {
      .card { fill: #161b22; stroke: #30363d } text { fill: #e6edf3 }
      .postgres { fill: #6ba3ff } .sqlite { fill: #3fc5a8 } .other { fill: #6e7883 } .limit { fill: #3a424b }
      .range { stroke: #e6edf3 }
    }
"""
"""The chart has a background of its own, so that its text is readable whatever the page around it looks like."""


def chart(section: Section, results: Results) -> str:
    """Return a chart of the median rates of a section. Each workload has a scale of its own."""
    rows = [row for row in results.grouped() if row.median("rate")]
    groups = [list(some) for _, some in groupby(rows, lambda row: row.workload)]
    parts, y = list[str](), _PAD
    for group in groups:
        parts.append(_text(_PAD, y + 19, _titled(group[0]), "head"))
        parts += _bars(group, y + _HEAD)
        y += _HEAD + _LINE * len(group) + _PAD // 2
    height = y + _PAD // 2
    title = escape(f"{section.title}: rates of every system")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{title}"><title>{title}</title><style>{STYLE}</style>\n'
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _titled(row: Row) -> str:
    return f"{row.workload} ({row.unit} per second)"


def _bars(group: list[Row], y: int) -> Iterator[str]:
    """Draw a bar for each system, with a line from its lowest to its highest round."""
    most = max(max(row.all("rate")) for row in group)
    for number, row in enumerate(group):
        top, rates = y + number * _LINE, row.all("rate")
        length = _BAR * (row.median("rate") or 0) / most
        low, high = (_LABEL + _BAR * rate / most for rate in (min(rates), max(rates)))
        yield _text(_LABEL - _GAP, top + 15, _short(row.system), anchor="end")
        yield f'<rect class="{_kind(row.system)}" x="{_LABEL}" y="{top + 3}" width="{length:.1f}" height="16" rx="2"/>'
        if len(rates) > 1:
            yield f'<path class="range" d="M{low:.1f} {top + 11}H{high:.1f}"/>'
        yield _text(max(_LABEL + length, high) + _GAP, top + 15, f"{row.median('rate'):,.0f}")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(system: str) -> str:
    """Return the name of a system, cut to the width of its column."""
    letters = int((_LABEL - _PAD) / _LETTER)
    return system if len(system) <= letters else f"{system[: letters - 1]}…"


def _kind(system: str) -> str:
    if "ceiling" in system:
        return "limit"
    if not system.startswith("Fairlane"):
        return "other"
    return "postgres" if "PostgreSQL" in system else "sqlite"
