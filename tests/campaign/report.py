"""The merged report of a campaign, as Markdown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from fairlane.verify.report import bound
from fairlane.verify.timeline import quantile

Results = Sequence[dict[str, Any]]


def as_markdown(results: Results) -> str:
    broken = [(one, violation) for one in results for violation in one["violations"]]
    parts = [
        "# Campaign",
        f"{len(results)} runs in {sum(one['seconds'] for one in results) / 3600:.1f} hours, {len(broken)} violations.",
        _about(results),
        "## Promises",
        table(("promise", "store", "trials", "95 % bound", "violations"), _promises(results)),
        "## Faults",
        table(("fault", "store", "times", "recovery p50", "p99"), _faults(results)),
        "## Simulated power cuts",
        table(("recordings", "cuts", "writes that a cut could undo", "accepted pushes", "violations"), _cuts(results)),
        "## Time until work goes on",
        table(("store", "after", "times", "p50", "p99", "longest"), liveness_rows(results)),
        "## Experiments",
        table(("experiment", "store", "runs", "minutes", "seeds", "violations"), _experiments(results)),
    ]
    if skipped := _skipped(results):
        parts += ["## Not covered", table(("fault", "needs"), skipped)]
    if broken:
        parts += ["## Violations", "\n".join(f"- {one['experiment']}, {one['store']}: {text}" for one, text in broken)]
    return "\n\n".join(parts) + "\n"


def _about(results: Results) -> str:
    dates = sorted(one["at"] for one in results)
    commits = ", ".join(sorted({one["commit"] for one in results}))
    return f"{dates[0]} to {dates[-1]} UTC, commits {commits}; {versions_of(results)}." if dates else ""


def versions_of(results: Results) -> str:
    """Return the versions of everything that took part."""
    versions: dict[str, set[str]] = defaultdict(set)
    for one in results:
        for name, text in one.get("result", {}).get("versions", {}).items():
            versions[name].add(text)
    return ", ".join(f"{name} {' and '.join(sorted(texts))}" for name, texts in sorted(versions.items()))


def verified(results: Results) -> Results:
    return [one for one in results if "promises" in one.get("result", {})]


def _promises(results: Results) -> list[tuple[str, ...]]:
    trials: Counter[tuple[str, str]] = Counter()
    violations: Counter[tuple[str, str]] = Counter()
    for one in verified(results):
        for promise in one["result"]["promises"]:
            key = promise["promise"], one["store"]
            trials[key] += promise["trials"]
            violations[key] += promise["violations"]
    order = sorted(trials, key=lambda key: (int(key[0].split()[0][1:]), key[1]))
    return [
        (*key, f"{trials[key]:,}", bound(trials[key], violations[key]), str(violations[key]))
        for key in order
        if trials[key]
    ]


def _faults(results: Results) -> list[tuple[str, ...]]:
    times: Counter[tuple[str, str]] = Counter()
    recovery: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in verified(results):
        for name, count in one["result"]["faults"].items():
            times[name, one["store"]] += count
        for name, seconds in one["result"]["recovery_seconds"].items():
            recovery[name, one["store"]] += seconds
    return [
        (*key, f"{times[key]:,}", *(f"{quantile(recovery[key], share):.2f} s" for share in (0.5, 0.99)))
        for key in sorted(times)
    ]


def _cuts(results: Results) -> list[tuple[str, ...]]:
    found = [one["result"] for one in results if "cuts" in one.get("result", {})]
    sums = [sum(one[name] for one in found) for name in ("cuts", "undone", "accepted")]
    violations = sum(len(one["violations"]) for one in found)
    return [(str(len(found)), *(f"{one:,}" for one in sums), str(violations))]


def liveness_rows(results: Results) -> list[tuple[str, ...]]:
    what = {
        "recovery": "kill -9 of the only broker, to a push",
        "start": "CPU time of the broker in it",
        "takeover": "the end of a dead consumer's lease",
    }
    return [
        (
            *(one["store"], text, str(one["result"][name]["count"])),
            *(f"{one['result'][name][share]:.2f} s" for share in ("p50", "p99", "max")),
        )
        for one in results
        if "takeover" in one.get("result", {})
        for name, text in what.items()
        if name in one["result"]
    ]


def _experiments(results: Results) -> list[tuple[str, ...]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in results:
        groups[one["experiment"], one["store"]].append(one)
    return [
        (
            *key,
            str(len(some)),
            f"{sum(one['seconds'] for one in some) / 60:.0f}",
            ", ".join(str(one["seed"]) for one in sorted(some, key=lambda one: int(one["seed"]))),
            str(sum(len(one["violations"]) for one in some)),
        )
        for key, some in groups.items()
    ]


def _skipped(results: Results) -> list[tuple[str, str]]:
    return sorted({(each["fault"], each["needs"]) for one in verified(results) for each in one["result"]["skipped"]})


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] | None = None) -> str:
    """Return a table in Markdown. With `left`, the columns after these are numbers."""
    rule = ["---"] * len(titles) if left is None else [*left, *["---:"] * (len(titles) - len(left))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [titles, rule, *rows])
