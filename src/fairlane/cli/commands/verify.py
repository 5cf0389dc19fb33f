"""`fairlane verify`: break brokers and a store under load, and check every promise."""

from __future__ import annotations

import os
import signal
import sys
from operator import itemgetter
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Annotated

from fairlane.cli.toolkit.command import AsJson, Columns, CommandGroup, Output, command, print_output, print_rows
from fairlane.cli.toolkit.output import echo
from fairlane.cli.toolkit.parameters import opt
from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from fairlane.verify.campaign import VerifyOutcome, VerifyProgress

_PHASES = {
    "quiet": "traffic without faults",
    "faults": "traffic and faults",
    "drain": "consumers finish what is left",
    "check": "comparing the history with the log, SQL and the API",
}
app = CommandGroup()
_STORE = "Store: sqlite:///FILE, postgresql://..., postgres for a server of its own, or cells for two."


@command(app)
def verify(
    store: Annotated[str, opt(_STORE, metavar="URL")] = "postgres",
    minutes: Annotated[float, opt("Minutes of faults. Starting, draining and checking come on top.")] = 10.0,
    brokers: Annotated[int, opt("Number of brokers. 0 for one on SQLite and three on PostgreSQL.")] = 0,
    seed: Annotated[int | None, opt("Chooses traffic and faults. Random by default, and printed.")] = None,
    faults: Annotated[str, opt("Names of faults, separated by commas, or none. Default: all that are safe here.")] = "",
    list_faults: Annotated[bool, opt("List the faults and exit.", "--list-faults")] = False,
    report: Annotated[Path, opt("File of the report: HTML, and Markdown beside it.")] = Path("fairlane-verify.html"),
    keep: Annotated[bool, opt("Keep the queues, histories and logs of the run.", "--keep")] = False,
    beside_others: Annotated[bool, opt("Run on a store that others use.", "--beside-others")] = False,
    json: Annotated[bool, AsJson.__metadata__[0]] = False,
) -> None:
    """Prove the guarantees on your own database: random traffic, random faults, and a check of every promise.

    Starts brokers of its own on the store, kills and freezes them, cuts connections and drops answers. Afterwards it
    compares what the clients saw with the log, with SQL and with the API. It uses queues of its own and deletes them at
    the end. Faults that would hurt others need a server of its own. Exits 1 if a promise was broken.

        fairlane verify --store sqlite:///v.db --minutes 2
    """
    from fairlane import server_extra as _extra  # noqa: F401

    if list_faults:
        _print_faults(json)
        return
    if not 0 <= minutes < 7 * 24 * 60:
        raise InvalidRequest(f"minutes is {minutes:g}; it must be at least 0 and less than a week")
    if brokers < 0 or brokers > 16:
        raise InvalidRequest(f"brokers is {brokers}; it must be 0 to 16")
    if not os.access(report.parent, os.W_OK):
        raise InvalidRequest(f"cannot write the report to {report.parent}; name another file with --report")
    import asyncio
    from random import SystemRandom

    from fairlane.verify import report as reports
    from fairlane.verify.campaign import verify as run
    from fairlane.verify.deployment import VerifyPlan

    names = [name.strip() for name in faults.split(",") if name.strip()]
    plan = VerifyPlan(
        store=store,
        seconds=minutes * 60,
        seed=seed if seed is not None else SystemRandom().randrange(1_000_000),
        brokers=brokers,
        faults=names,
        keep=keep,
        beside_others=beside_others,
    )
    if current_thread() is main_thread():  # SIGTERM, too, stops the brokers and the server of the run
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _Progress(plan.seed) as progress:
        outcome = asyncio.run(run(plan, progress.show))
    files = reports.write(outcome, report)
    print_output(Output(_summary(outcome), lambda: _print(outcome, files), 1 if outcome.violations else 0), json)


def _print_faults(json: bool) -> None:
    from fairlane.verify.campaign import REGISTERED as _registered  # noqa: F401
    from fairlane.verify.nemesis import FAULTS, NEEDS

    rows = [{"fault": one.name, "does": one.help, "needs": NEEDS[one.need]} for one in FAULTS.values()]
    columns: Columns = {title: itemgetter(title) for title in ("fault", "does", "needs")}
    print_output(Output(rows, lambda: print_rows(columns, rows)), json)


def _summary(outcome: VerifyOutcome) -> dict[str, object]:
    from fairlane.verify.timeline import recoveries

    return {
        "seed": outcome.plan.seed,
        "violations": outcome.violations,
        "promises": [
            {"promise": one.promise.name, "trials": one.trials, "violations": len(one.violations)}
            for one in outcome.promises
        ],
        "faults": outcome.faults,
        "store": outcome.store,
        "brokers": outcome.brokers,
        "began_at": outcome.began_at.isoformat(timespec="seconds"),
        "minutes": round(outcome.fault_seconds / 60, 2),
        "versions": outcome.versions,
        "recovery_seconds": {
            name: [round(one, 3) for one in times] for name, times in recoveries(outcome.history).items()
        },
        "skipped": [{"fault": name, "needs": need} for name, need in outcome.skipped],
    }


def _print(outcome: VerifyOutcome, files: list[Path]) -> None:
    from fairlane.verify.report import replay_command, verdict

    columns: Columns = {
        "promise": lambda one: one.promise.name,
        "trials": lambda one: one.trials,
        "": lambda one: one.promise.trial,
        "violations": lambda one: len(one.violations),
    }
    print_rows(columns, outcome.promises)
    echo("")
    for violation in outcome.violations:
        echo(f"VIOLATION: {violation}")
    if outcome.skipped:
        echo(f"{len(outcome.skipped)} faults were skipped, because they need something that is missing here:")
        for name, need in outcome.skipped:
            echo(f"  {name}: {need}")
    echo(verdict(outcome))
    echo(f"Report: {files[0]} and {files[1]}")
    if outcome.directory is not None:
        echo(f"Histories and logs: {outcome.directory}")
    if outcome.leftovers:
        echo("The queues of the run were kept; their names begin with fairlane-verify.")
    echo(f"Again: {replay_command(outcome)}")


class _Progress:
    """The live view of a run: a screen on a terminal, one line for each phase and fault elsewhere."""

    def __init__(self, seed: int) -> None:
        from fairlane.cli.toolkit.screen import Screen

        self._seed = seed
        self._screen = Screen() if sys.stdout.isatty() else None
        self._last = ""

    def __enter__(self) -> _Progress:
        if self._screen is not None:
            self._screen.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._screen is not None:
            self._screen.__exit__(*raised)

    def show(self, state: VerifyProgress) -> None:
        if self._screen is not None:
            self._screen.draw(_lines(self._seed, state))
            return
        line = f"{state.phase}: {state.detail}" if state.detail else state.phase
        if line != self._last and (state.detail or not self._last.startswith(state.phase)):
            self._last = line
            sys.stderr.write(f"{line}\n")


def _lines(seed: int, state: VerifyProgress) -> list[str]:
    """Return the lines of the live view."""
    left = f", {state.seconds_left:.0f} s left" if state.seconds_left else ""
    rows = [f"  {name:<24}{count}" for name, count in sorted(state.faults.items())]
    return [
        f"fairlane verify, seed {seed}",
        "",
        f"{'phase':<12}{_PHASES.get(state.phase, 'starting')}{left}",
        f"{'now':<12}{state.detail or '-'}",
        f"{'pushed':<12}{state.counts.pushed:,} messages",
        f"{'received':<12}{state.counts.delivered:,} messages",
        "",
        "faults so far" if rows else "no faults yet",
        *rows,
        "",
        "Ctrl-C ends the faults early, and goes on with the checks."
        if state.phase == "faults"
        else "Ctrl-C ends the run without a result.",
    ]
