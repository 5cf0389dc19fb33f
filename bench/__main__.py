"""Measure Fairlane beside other systems and the limits of the machine.

    make bench                                      all sections, about 20 minutes on two cores
    make bench-full                                 more and longer rounds, and a larger backlog
    make bench ARGS="http growth"                   some sections
    make bench ARGS="core --quick"                  too short to measure; shows that it runs
    make bench ARGS=--write                         write the figures into docs/benchmarks.md
    make bench ARGS="core http --against ../before" compare with another checkout, as ratios

Every system is started by this run on an empty directory with equal durability, warmed up, and measured in interleaved
rounds. Results are printed and written to build/bench.json and build/bench.md.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench.compare import compare
from bench.machine import ROOT, QuietCheck, facts
from bench.meter import flushed_device
from bench.sections import ALL, SECTIONS
from bench.stores import MAJORS, postgres_server, settings_in_force
from bench.suite import FULL, NORMAL, QUICK, Suite
from bench.tables import Report, section_table, write_between_marks
from fairlane.runtime.memory import collect_rarely, exempt_from_collection
from fairlane.runtime.process import new_event_loop

PAGE = ROOT / "docs/benchmarks.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [section.name for section in ALL]
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"any of {', '.join(names)} (all but core)")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="measure in turns with another checkout")
    parser.add_argument("--full", action="store_true", help="more and longer rounds, and a larger backlog")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    parser.add_argument("--rounds", type=int, help="how often to repeat each measurement (3, with --full 5)")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/benchmarks.md")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=max(MAJORS), help="version of the server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="a directory on the disk")
    parser.add_argument("--output", type=Path, default=ROOT / "build", help="where bench.json and bench.md go (build)")
    parser.add_argument("--in-turns", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.sections) - set(names)):
        parser.error(f"there is no section {unknown[0]!r}; choose from {', '.join(names)}")
    if chosen.quick and chosen.write:
        parser.error("--quick measures too little for the page: leave out --quick or --write")
    if chosen.against and chosen.write:
        parser.error("--against compares checkouts and has no figures for the page: leave out --against or --write")
    chosen.sections = [section for section in ALL if section.name in chosen.sections] or list(SECTIONS)
    return chosen


async def measure(chosen: argparse.Namespace, console: Console) -> None:
    """Measure the chosen sections of this checkout and report them."""
    scale = QUICK if chosen.quick else FULL if chosen.full else NORMAL
    scale = scale._replace(rounds=chosen.rounds or scale.rounds)
    quiet = QuietCheck()
    collect_rarely()  # as the broker process does
    exempt_from_collection()
    with postgres_server(chosen.directory, major=chosen.postgres) as server:
        device = flushed_device(chosen.directory)
        known = facts(chosen.directory, await settings_in_force(server))
        known.append(f"Rounds: {scale.rounds}, of {scale.seconds} s each where a time limit ends them.")
        if chosen.quick:
            known.append("QUICK: one short round shows that it runs, not how fast.")
        report = Report(shlex.join(["python", "-m", "bench", *sys.argv[1:]]), known)
        for fact in known:
            console.print(fact, markup=False)
        suite = Suite(scale, chosen.directory, server, device, in_turns=chosen.in_turns)
        chosen.output.mkdir(parents=True, exist_ok=True)
        for section in chosen.sections:
            results = await section.run(suite)
            report.measured.append((section, results))
            report.facts = [*known, quiet.summary()]
            console.print(section_table(section, results).console())
            for note in results.notes:
                console.print(note, markup=False)
            # After each section, so that a run that is interrupted leaves its results.
            (chosen.output / "bench.json").write_text(report.json(), encoding="utf-8")
            (chosen.output / "bench.md").write_text(report.markdown(), encoding="utf-8")
            report.write_charts(chosen.output)
    console.print(report.comparison_table().console())
    console.print(report.facts[-1], markup=False)
    if chosen.write:
        write_between_marks(PAGE, report.markdown())
        report.write_charts(PAGE.parent)


async def main() -> None:
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)
    if chosen.against is None:
        await measure(chosen, console)
        return
    options = [section.name for section in chosen.sections]
    options += ["--quick"] * chosen.quick + ["--full"] * chosen.full
    options += ["--rounds", str(chosen.rounds)] if chosen.rounds else []
    options += ["--postgres", str(chosen.postgres), "--directory", str(chosen.directory.resolve())]
    console.print((await compare(ROOT, chosen.against.resolve(), options, chosen.output.resolve())).console())


with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(main())
