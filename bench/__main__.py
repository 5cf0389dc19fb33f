"""Measure everything that has a target, in one run, and say which targets hold.

    make bench                              about 18 minutes on two cores
    make bench-full                         more and longer rounds, a larger backlog, and what takes minutes
    make bench ARGS="--only http --quick"   one section, too short to measure
    make bench ARGS=--write                 and put the figures into docs/benchmarks.md

Every system is started by this run on an empty directory with equal durability, warmed up, and measured in rounds that
take turns, so that what else the machine does hits all of them. Results are printed, and left in build/bench.json and
build/bench.md. A missed target is told and does not change the exit code: the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.figures import Findings, Target
from bench.meter import flushed_device, processor_ticks
from bench.postgres import MAJORS, running, settings_in_force
from bench.publish import Report, section_table, target_table, write_between_marks
from bench.report import machine
from bench.sections import SECTIONS
from bench.suite import FULL, NORMAL, QUICK, STORES, Section, Suite, ours
from fairlane.runtime.memory import ease_collector
from fairlane.runtime.process import new_event_loop

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/benchmarks.md"
QUIET_LOAD, QUIET_STEAL = 0.5, 0.02
BROKER_MB_MAX = 150.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [section.name for section in SECTIONS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="SECTION", help=f"some of {', '.join(names)}")
    parser.add_argument(
        "--full", action="store_true", help="more and longer rounds, and the sections that take minutes"
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, not how fast")
    parser.add_argument("--rounds", type=int, help="how often each run is repeated (3; of --full 5)")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/benchmarks.md")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=max(MAJORS), help="version of the server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    parser.add_argument("--output", type=Path, default=ROOT / "build", help="where bench.json and bench.md go (build)")
    chosen = parser.parse_args()
    if chosen.quick and chosen.write:
        parser.error("--quick measures nothing that is worth a page: leave out --quick, or --write")
    return chosen


def sections(chosen: argparse.Namespace) -> list[Section]:
    """Those asked for by name, or all but what only --full has."""
    if chosen.only:
        return [section for section in SECTIONS if section.name in chosen.only]
    return [section for section in SECTIONS if chosen.full or not section.full]


def commit() -> str:
    """Of the tree that is measured, and whether it was changed since."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty=, changed since"], cwd=ROOT, capture_output=True, text=True
    )
    return told.stdout.strip() or "unknown: this is no clone"


class Quiet:
    """Whether others were at work: the load before, and what other guests of the host took meanwhile."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._began, self._ticks = time.monotonic(), processor_ticks()

    def told(self) -> str:
        """With how long it took so far."""
        total, stolen = (now - then for now, then in zip(processor_ticks(), self._ticks, strict=True))
        steal = stolen / total if total else 0.0
        said = f"load average {self._load:.2f} before, {steal:.1%} of the CPU time stolen by the host meanwhile"
        quiet = self._load <= QUIET_LOAD and steal <= QUIET_STEAL
        took = f"the run took {(time.monotonic() - self._began) / 60:.1f} minutes"
        return f"{'The machine was quiet' if quiet else 'THE MACHINE WAS NOT QUIET'}: {said}; {took}."


def memory(found: list[tuple[Section, Findings]]) -> list[Target]:
    """The highest peak of a broker in all runs of each store."""
    made = []
    for kind in STORES:
        peaks = [
            (peak, f"at its peak in `{section.name}`")
            for section, findings in found
            for row in findings.rows.values()
            if row.system.startswith(ours(kind))
            for peak in row.all("broker_peak")
        ]
        if peaks:
            peak, where = max(peaks)
            made.append(Target("memory of a broker", ours(kind), peak / 1e6, BROKER_MB_MAX, " MB", True, basis=where))
    return made


async def main() -> None:
    chosen = arguments()
    scale = QUICK if chosen.quick else FULL if chosen.full else NORMAL
    scale = scale._replace(rounds=chosen.rounds or scale.rounds)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 220)
    quiet = Quiet()
    ease_collector()  # as the broker process does
    with running(chosen.directory, major=chosen.postgres) as server:
        device = flushed_device(chosen.directory)
        facts = [f"Commit {commit()}.", *machine(chosen.directory, await settings_in_force(server))]
        facts.append(f"Rounds: {scale.rounds}, each run for {scale.seconds} s where a time ends it.")
        if device is None:
            facts.append("Flushes of the disk are not counted: this kernel or disk does not tell them.")
        if chosen.quick:
            facts.append("QUICK: one short round shows that it runs, not how fast.")
        command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
        report = Report(command, facts)
        for fact in facts:
            console.print(fact, markup=False)
        suite = Suite(scale, chosen.directory, server, device)
        chosen.output.mkdir(parents=True, exist_ok=True)
        for section in sections(chosen):
            findings = await section.run(suite)
            report.found.append((section, findings))
            report.more = memory(report.found)
            report.facts = [*facts, quiet.told()]
            console.print(section_table(section, findings))
            for note in findings.notes:
                console.print(note, markup=False)
            # After each: a run that is stopped has left what it found.
            (chosen.output / "bench.json").write_text(report.json(), encoding="utf-8")
            (chosen.output / "bench.md").write_text(report.markdown(), encoding="utf-8")
    console.print(target_table(report.targets))
    console.print(report.summary)
    console.print(report.facts[-1], markup=False)
    if chosen.write:
        write_between_marks(PAGE, report.markdown())


with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(main())
