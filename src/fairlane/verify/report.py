"""The report of a run on one page, as Markdown and as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from fairlane.verify.campaign import VerifyOutcome
from fairlane.verify.history import NEVER, RecordedHistory
from fairlane.verify.nemesis import FAULTS
from fairlane.verify.promises import PromiseResult
from fairlane.verify.timeline import draw, quantile, recoveries

Rows = Sequence[Sequence[str]]
FATES = {
    "done": "stored",
    "deferred": "accepted into a journal",
    "refused": "refused",
    "unknown": "with an unknown result",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #667085; --line: #d8dde5; --page: #fff; --card: #f6f7f9;
  --good: #157347; --bad: #b42318; --a: #2563a8; --b: #8a5a00; --c: #6d3fb0; --fault: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #98a2b3; --line: #343b46; --page: #14181f;
  --card: #1c222b; --good: #4cc38a; --bad: #ff8a80; --a: #7db4f0; --b: #e0b04c; --c: #b797f0;
  --fault: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 20px 48px; max-width: 1040px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 8px; }
.dim { color: var(--dim); } .good { color: var(--good); } .bad { color: var(--bad); }
.verdict { font-size: 19px; font-weight: 600; margin: 16px 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 500; }
td.number, th.number, td.number + td { white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font: 13px/1.5 ui-monospace, monospace; } pre { background: var(--card); padding: 12px; overflow-x: auto; }
svg { width: 100%; min-width: 720px; height: auto; font: 11px system-ui, sans-serif; }
.tick, .label { fill: var(--dim); } .axis { stroke: var(--line); } .line { fill: none; stroke-width: 1.5; }
.a { stroke: var(--a); } .b { stroke: var(--b); } .c { stroke: var(--c); }
.key { stroke: none; } .key.a { fill: var(--a); } .key.b { fill: var(--b); } .key.c { fill: var(--c); }
.mark { stroke: var(--dim); stroke-dasharray: 3 3; }
.shadow { fill: var(--fault); opacity: .07; } .fault { fill: var(--fault); opacity: .75; }
"""


def write(outcome: VerifyOutcome, file: Path) -> list[Path]:
    """Write the report as HTML to `file` and as Markdown beside it. Returns both paths."""
    page, text = file.with_suffix(".html"), file.with_suffix(".md")
    page.write_text(as_html(outcome), encoding="utf-8")
    text.write_text(as_markdown(outcome), encoding="utf-8")
    return [page, text]


def verdict(outcome: VerifyOutcome) -> str:
    """Return the result in one sentence."""
    broken = [result.promise.name for result in outcome.promises if result.violations]
    if not broken:
        return f"No promise was broken: {sum(result.trials for result in outcome.promises):,} trials, 0 violations."
    return f"Broken: {', '.join(broken)}. {len(outcome.violations)} violations."


def replay_command(outcome: VerifyOutcome) -> str:
    """Return the command that makes the same traffic and faults again."""
    plan = outcome.plan
    words = ["fairlane verify", f"--store {_masked(plan.store)}", f"--minutes {plan.seconds / 60:g}"]
    words += [f"--brokers {plan.brokers}"] if plan.brokers else []
    words += [f"--faults {','.join(plan.faults)}"] if plan.faults else []
    return " ".join([*words, f"--seed {plan.seed}"])


def bound(trials: int, violations: int) -> str:
    """Return the upper bound on the failure rate that trials without a failure support, with 95 % confidence."""
    return "" if violations or trials < 3 else f"≤ {_percent(3 / trials)}"


def _percent(share: float) -> str:
    """Return a share with two significant digits, such as 0.0021 %."""
    digits = max(0, 1 - math.floor(math.log10(share * 100)))
    return f"{share * 100:.{digits}f} %"


def _minutes(seconds: float) -> str:
    minutes = round(seconds / 60, 1)
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def promise_rows(outcome: VerifyOutcome) -> Rows:
    return [
        (
            *(result.promise.name, result.promise.sentence, f"{result.trials:,} {result.promise.trial}"),
            *(bound(result.trials, len(result.violations)), str(len(result.violations))),
        )
        for result in outcome.promises
    ]


def fault_rows(outcome: VerifyOutcome) -> Rows:
    times = recoveries(outcome.history)
    return [
        (
            *(name, FAULTS[name].help, str(count)),
            *(f"{quantile(times.get(name, []), share):.2f} s" if name in times else "" for share in (0.5, 0.99)),
        )
        for name, count in sorted(outcome.faults.items())
    ]


def fact_rows(outcome: VerifyOutcome) -> Rows:
    """Return what was run, when and where."""
    history, plan = outcome.history, outcome.plan
    fates = {text: sum(push.fate == fate for push in history.pushes) for fate, text in FATES.items()}
    return [
        ("store", f"{outcome.store}{CELLS.get(plan.store, '')}, {_brokers(outcome.brokers)}"),
        ("time", f"{outcome.began_at:%Y-%m-%d %H:%M} UTC, {_minutes(outcome.fault_seconds)} of faults"),
        ("pushes", ", ".join(f"{count:,} {text}" for text, count in fates.items() if count)),
        ("deliveries", f"{len(history.deliveries):,}, and {len(history.acks):,} acks"),
        ("all finished", _drained(history)),
        ("versions", ", ".join(f"{name} {text}" for name, text in outcome.versions.items() if name != "system")),
        ("system", outcome.versions.get("system", "")),
        ("seed", str(plan.seed)),
    ]


def _brokers(count: int) -> str:
    return f"{count} broker{'s' if count != 1 else ''}"


def _drained(history: RecordedHistory) -> str:
    if NEVER in (history.drained_at, history.mended_at):
        return "never"
    return f"{history.drained_at - history.mended_at:.1f} s after the last fault"


CELLS = {"cells": " with two cells"}
_PROMISES = ("promise", "says", "trials", "95 % bound", "violations")
_FAULTS = ("fault", "does", "times", "recovery p50", "p99")
_READING = (
    "A trial is one event that could have broken the promise. Without a violation the failure rate is at most "
    "3 / trials, with 95 % confidence. Timeouts and errors count as unknown, never as failed. "
    "The bound says nothing about other faults and traffic. "
    "Recovery is the time from the end of a fault, or from a kill, to the first answer to a push after it."
)


def as_markdown(outcome: VerifyOutcome) -> str:
    parts = [
        "# Reliability report",
        verdict(outcome),
        _table(("", ""), fact_rows(outcome)),
        "## Promises",
        _table(_PROMISES, promise_rows(outcome)),
        _READING,
        "## Faults",
        _table(_FAULTS, fault_rows(outcome)),
        *_not_covered(outcome),
        *(["## Violations", "\n".join(f"- {one}" for one in outcome.violations)] if outcome.violations else []),
        "## Run it again",
        f"```sh\n{replay_command(outcome)}\n```",
        "The seed chooses the same traffic and faults. Their timing differs.",
    ]
    return "\n\n".join(parts) + "\n"


def _not_covered(outcome: VerifyOutcome) -> list[str]:
    if not outcome.skipped:
        return []
    rows = [(name, need) for name, need in outcome.skipped]
    return ["## Not covered", f"{len(rows)} faults were skipped.", _table(("fault", "needs"), rows)]


def _table(titles: Sequence[str], rows: Rows) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def as_html(outcome: VerifyOutcome) -> str:
    good = not outcome.violations
    skipped = ""
    if outcome.skipped:
        skipped = f"<h2>Not covered</h2><p>{len(outcome.skipped)} faults were skipped.</p>"
        skipped += _html_table(("fault", "needs"), outcome.skipped)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Reliability report</title><style>{_STYLE}</style></head><body>
<h1>Reliability report</h1>
<p class="dim">Random traffic and faults on {escape(outcome.store)}, checked against every promise.</p>
<p class="verdict {"good" if good else "bad"}">{escape(verdict(outcome))}</p>
{_html_table((), fact_rows(outcome))}
<h2>Timeline</h2>
<div class="wide">{draw(outcome.history, outcome.began, min(outcome.ended, outcome.history.drained_at))}</div>
<h2>Promises</h2>
{_html_table(_PROMISES, promise_rows(outcome), numbers=(3, 4))}
<p class="dim">{escape(_READING)}</p>
{_html_violations(outcome.promises)}
<h2>Faults</h2>
{_html_table(_FAULTS, fault_rows(outcome), numbers=(2, 3, 4))}
{skipped}
<h2>Run it again</h2>
<pre>{escape(replay_command(outcome))}</pre>
<p class="dim">The seed chooses the same traffic and faults. Their timing differs.</p>
</body></html>
"""


def _html_violations(results: list[PromiseResult]) -> str:
    broken = [result for result in results if result.violations]
    if not broken:
        return ""
    parts = ['<h2 class="bad">Violations</h2>']
    for result in broken:
        items = "".join(f"<li>{escape(one)}</li>" for one in result.violations)
        parts.append(f"<h3>{escape(result.promise.name)}</h3><ul>{items}</ul>")
    return "".join(parts)


def _html_table(titles: Sequence[str], rows: Rows, *, numbers: tuple[int, ...] = ()) -> str:
    def row(tag: str, cells: Sequence[str]) -> str:
        shown = []
        for at, cell in enumerate(cells):
            kind = ' class="number"' if at in numbers else ""
            shown.append(f"<{tag}{kind}>{escape(cell)}</{tag}>")
        return f"<tr>{''.join(shown)}</tr>"

    head = row("th", titles) if titles else ""
    return f'<div class="wide"><table>{head}{"".join(row("td", one) for one in rows)}</table></div>'


def _masked(store: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(store)
    return store.replace(f":{parts.password}@", ":***@") if parts.password else store
