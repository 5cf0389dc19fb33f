"""The timeline of a run as an SVG: throughput and latency of pushes, above the faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fairlane.verify.history import NEVER, FaultSpan, PushRecord, RecordedHistory

WIDTH, LEFT, RIGHT = 960, 168, 12
PLOT_HEIGHT, ROW_HEIGHT, GAP = 84, 15, 22
BINS_MAX = 240
SUDDEN = frozenset({"kill_broker", "kill_all_brokers"})
"""Faults after which the broker is started again at once, as a supervisor does."""


class TimelineBin(NamedTuple):
    """One bin of the timeline."""

    accepted: float
    """Accepted messages a second."""
    delivered: float
    """Delivered messages a second."""
    slowest_ms: float
    """The 99th percentile of the time until the answer, in milliseconds. 0 without answers."""


def bins_of(history: RecordedHistory, began: float, ended: float) -> tuple[float, list[TimelineBin]]:
    """Return the width of a bin in seconds, and the bins of a run."""
    width = max(1.0, (ended - began) / BINS_MAX)
    count = int((ended - began) / width) + 1
    accepted, delivered = [0] * count, [0] * count
    waits: dict[int, list[float]] = defaultdict(list)
    for push in history.pushes:
        if push.fate in ("done", "deferred") and began <= push.ended < ended:
            at = int((push.ended - began) / width)
            accepted[at] += 1
            waits[at].append((push.ended - push.began) * 1000)
    for one in history.deliveries:
        if began <= one.ended < ended:
            delivered[int((one.ended - began) / width)] += 1
    return width, [
        TimelineBin(accepted[at] / width, delivered[at] / width, quantile(waits[at], 0.99)) for at in range(count)
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies, or 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def recoveries(history: RecordedHistory) -> dict[str, list[float]]:
    """Return the seconds from the end of each fault to the answer to the first push after it, by fault.

    After a kill they count from the kill, and so include the start of the killed process.
    """
    accepted = sorted(
        (push for push in history.pushes if push.fate in ("done", "deferred") and push.ended < NEVER),
        key=lambda push: push.began,
    )
    found: dict[str, list[float]] = defaultdict(list)
    for span in history.faults:
        since = span.began if span.name in SUDDEN else span.ended
        if (answered := _first_answer(accepted, since, span.ended)) is not None:
            found[span.name].append(answered - since)
    return dict(found)


def _first_answer(accepted: Sequence[PushRecord], after: float, over: float) -> float | None:
    """Return the first answer to a push that began `after` a fault, or was still unanswered when it was `over`."""
    later = (push.ended for push in accepted if push.began > after or push.ended > over)
    return min((ended for ended in later if ended > after), default=None)


def draw(history: RecordedHistory, began: float, ended: float) -> str:
    """Return the timeline as an SVG element."""
    width, bins = bins_of(history, began, ended)
    names = sorted({span.name for span in history.faults})
    plots = 3 * (PLOT_HEIGHT + GAP)
    height = plots + ROW_HEIGHT * len(names) + 2 * GAP
    scale = (WIDTH - LEFT - RIGHT) / max(ended - began, 1.0)
    lines = [
        ("pushed", "messages a second", "a", [one.accepted for one in bins]),
        ("received", "messages a second", "b", [one.delivered for one in bins]),
        ("latency of pushes", "p99, ms", "c", [one.slowest_ms for one in bins]),
    ]
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Throughput, latency and faults over time">',
        *_shadows(history.faults, began, scale, plots),
        *(part for at, line in enumerate(lines) for part in _plot(at * (PLOT_HEIGHT + GAP), width * scale, *line)),
        *_rows(history.faults, names, began, scale, plots),
        *_end_of_faults(history.mended_at - began, scale, height - 22),
        *_axis(ended - began, scale, height - 8),
        "</svg>",
    ]
    return "\n".join(parts)


def _plot(top: int, step: float, title: str, unit: str, kind: str, values: list[float]) -> list[str]:
    """Return the axis and the line of one plot."""
    most = max(values, default=0.0) or 1.0
    base = top + PLOT_HEIGHT
    points = " ".join(
        f"{LEFT + (at + 0.5) * step:.1f},{base - value / most * (PLOT_HEIGHT - 8):.1f}"
        for at, value in enumerate(values)
    )
    return [
        f'<text class="tick" x="{LEFT - 8}" y="{top + 12}" text-anchor="end">{most:,.0f}</text>',
        f'<text class="key {kind}" x="{LEFT - 8}" y="{top + 32}" text-anchor="end">{escape(title)}</text>',
        f'<text class="label" x="{LEFT - 8}" y="{top + 47}" text-anchor="end">{escape(unit)}</text>',
        f'<text class="tick" x="{LEFT - 8}" y="{base}" text-anchor="end">0</text>',
        f'<line class="axis" x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}"/>',
        f'<polyline class="line {kind}" points="{points}"/>',
    ]


def _end_of_faults(seconds: float, scale: float, height: float) -> list[str]:
    """Return a line at the end of the last fault. Afterwards the consumers finish what is left."""
    x = LEFT + seconds * scale
    if x > WIDTH - RIGHT:  # a run that ended early
        return []
    return [
        f'<line class="mark" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height}"/>',
        f'<text class="label" x="{x + 6:.1f}" y="{height}">finishing what is left</text>',
    ]


def _shadows(spans: Sequence[FaultSpan], began: float, scale: float, height: int) -> list[str]:
    return [
        f'<rect class="shadow" x="{LEFT + (span.began - began) * scale:.1f}" y="0" '
        f'width="{max(1.0, (span.ended - span.began) * scale):.1f}" height="{height - GAP}"/>'
        for span in spans
    ]


def _rows(spans: Sequence[FaultSpan], names: list[str], began: float, scale: float, top: int) -> list[str]:
    """Return one row of marks for each fault."""
    parts = []
    for number, name in enumerate(names):
        y = top + number * ROW_HEIGHT
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{escape(name)}</text>')
        for span in spans:
            if span.name == name:
                seconds = span.ended - span.began
                parts.append(
                    f'<rect class="fault" x="{LEFT + (span.began - began) * scale:.1f}" y="{y}" '
                    f'width="{max(2.0, seconds * scale):.1f}" height="{ROW_HEIGHT - 4}">'
                    f"<title>{escape(name)}, {seconds:.1f} s</title></rect>"
                )
    return parts


def _axis(seconds: float, scale: float, y: int) -> list[str]:
    """Return a tick for about every tenth of the run."""
    every = next((one for one in (5, 10, 30, 60, 300, 600, 1800, 3600) if seconds / one <= 12), 7200)
    return [
        f'<text class="tick" x="{LEFT + at * scale:.1f}" y="{y}" text-anchor="middle">{_time(at)}</text>'
        for at in range(0, int(seconds * 0.96) + 1, every)
    ]


def _time(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60}:{seconds % 60:02} min"
