"""The results of a campaign in `docs/reliability.md`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from fairlane.verify.report import bound
from fairlane.verify.timeline import quantile
from tests.campaign.report import Results, liveness_rows, table, verified, versions_of

PAGE = Path("docs/reliability.md")
BEGIN, END = "<!-- results of a campaign -->", "<!-- end of the results -->"
STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "cells": "two cells"}
WIDTH = 100


def write_results(page: Path, results: Results) -> None:
    """Replace the results on the page. Raises ValueError if the page has no place for them."""
    text = page.read_text(encoding="utf-8")
    begin, end = text.find(BEGIN), text.find(END)
    if not 0 <= begin < end:
        raise ValueError(f"{page} must have {BEGIN} and {END}")
    page.write_text(f"{text[:begin]}{BEGIN}\n\n{as_section(results)}\n\n{text[end:]}", encoding="utf-8")


def as_section(results: Results) -> str:
    """Return the figures of a campaign as Markdown, wrapped like the other text of the page."""
    parts = [
        _paragraph(_about(results)),
        table(("promise", *STORES.values(), "95 % bound", "violations"), _promises(results), _RIGHT),
        table(("experiment", "store", "seeds", "runs", "minutes of faults"), _experiments(results), ("---",) * 3),
        table(("fault", *STORES.values()), _faults(results), _RIGHT),
        table(("store", "time from", "times", "p50", "p99", "longest"), _liveness(results), ("---",) * 2),
        *_cuts(results),
    ]
    return "\n\n".join(parts)


_RIGHT = ("---",)
"""Alignment of the first columns. The others are numbers."""


def _paragraph(text: str) -> str:
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _about(results: Results) -> str:
    dates = sorted(one["at"] for one in results)
    commits = " and ".join(sorted({one["commit"] for one in results}))
    loads = sorted(one["load"] for one in results if "load" in one)
    violations = sum(len(one["violations"]) for one in results)
    text = f"`make campaign` from {dates[0]} to {dates[-1]} UTC at commit {commits}, with {versions_of(results)}. "
    text += f"{sum(_minutes(results).values()):.0f} minutes of random faults: "
    text += "no violation." if not violations else f"{violations} violations."
    return text + (f" The load before the runs was {loads[0]:.1f} to {loads[-1]:.1f}." if loads else "")


def _minutes(results: Results) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for one in verified(results):
        found[one["experiment"], one["store"]] += one["result"]["minutes"]
    return found


def _promises(results: Results) -> list[tuple[str, ...]]:
    trials: Counter[tuple[str, str]] = Counter()
    violations: Counter[str] = Counter()
    for one in verified(results):
        for promise in one["result"]["promises"]:
            trials[promise["promise"], one["store"]] += promise["trials"]
            violations[promise["promise"]] += promise["violations"]
    rows = []
    for name in sorted(violations, key=lambda name: int(name.split()[0][1:])):
        counts = [trials[name, store] for store in STORES]
        rows.append(
            (name, *(f"{count:,}" for count in counts), bound(sum(counts), violations[name]), f"{violations[name]}")
        )
    return rows


def _experiments(results: Results) -> list[tuple[str, ...]]:
    minutes, seeds = _minutes(results), defaultdict(list)
    for one in results:
        seeds[one["experiment"], one["store"]].append(one["seed"])
    return [
        (
            *(experiment, STORES[store], ", ".join(map(str, sorted(found))), str(len(found))),
            f"{minutes[experiment, store]:g}" if minutes[experiment, store] else "",
        )
        for (experiment, store), found in seeds.items()
    ]


def _faults(results: Results) -> list[tuple[str, ...]]:
    times: Counter[tuple[str, str]] = Counter()
    for one in verified(results):
        for name, count in one["result"]["faults"].items():
            times[name, one["store"]] += count
    return [
        (f"`{name}`", *(f"{times[name, store]:,}" if times[name, store] else "" for store in STORES))
        for name in sorted({name for name, _ in times})
    ]


def _liveness(results: Results) -> list[tuple[str, ...]]:
    """Return the times until work goes on: alone from `liveness`, and with several brokers from random faults."""
    rows = [(STORES[store], *others) for store, *others in liveness_rows(results)]
    for store in ("postgres", "cells"):
        seconds = [
            one
            for result in verified(results)
            if result["store"] == store
            for one in result["result"]["recovery_seconds"].get("kill_broker", [])
        ]
        if seconds:
            shown = (f"{quantile(seconds, share):.2f} s" for share in (0.5, 0.99, 1))
            rows.append((STORES[store], "kill -9 of one broker of three, to a push", str(len(seconds)), *shown))
    return rows


def _cuts(results: Results) -> Sequence[str]:
    found = [one["result"] for one in results if "cuts" in one.get("result", {})]
    if not found:
        return []
    cuts, undone, accepted = (sum(one[name] for one in found) for name in ("cuts", "undone", "accepted"))
    violations = sum(len(one["violations"]) for one in results if "cuts" in one.get("result", {}))
    text = f"{cuts:,} simulated power cuts of recorded traffic could undo {undone:,} writes, and "
    if violations:
        return [_paragraph(f"{text}{violations} of them broke a promise.")]
    text += f"found all of {accepted:,} accepted pushes, counted at each cut. "
    text += f"So {re.sub('^≤ ', 'fewer than ', bound(cuts, 0))} of such cuts lose something, with 95 % confidence."
    return [_paragraph(text)]
