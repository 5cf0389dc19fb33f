"""Run every experiment on every store for hours, and merge the results into one report.

    make campaign                      five hours
    make campaign ARGS="--hours 0.5"   less of it
    make campaign ARGS="--only kills"  one experiment
    make campaign ARGS="--page"        also write the results to docs/reliability.md

The results are in build/campaign. A campaign that was interrupted continues with the run that was interrupted. Start
a new one with --fresh. Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from tests.campaign.page import PAGE, write_results
from tests.campaign.plan import EXPERIMENTS, Run, runs
from tests.campaign.report import as_markdown

RESULTS = Path("build/campaign")
SECONDS_MAX = 1800
"""Longest time of one run. One that takes longer is a violation: something hangs."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=5.0)
    parser.add_argument("--only", default="", help="names of experiments, separated by commas")
    parser.add_argument("--page", action="store_true", help=f"write the results to {PAGE}, too")
    parser.add_argument("--fresh", action="store_true", help="forget the results so far")
    given = parser.parse_args()
    only = {name.strip() for name in given.only.split(",") if name.strip()}
    if unknown := only - {one.name for one in EXPERIMENTS}:
        parser.error(f"no experiment is named {min(unknown)!r}; there are {', '.join(one.name for one in EXPERIMENTS)}")
    if given.fresh:
        shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    ends_at = time.monotonic() + given.hours * 3600
    for run in _open_runs(only):
        if time.monotonic() > ends_at:
            break
        sys.stdout.write(f"{run.experiment.name} on {run.store}, seed {run.seed} ... ")
        sys.stdout.flush()
        result = _execute(run)
        (RESULTS / f"{run.name}.json").write_text(json.dumps(result, indent=1))
        sys.stdout.write(f"{result['seconds']:.0f} s, {len(result['violations'])} violations\n")
        _report()
    results = _report()
    if given.page and results:
        write_results(PAGE, results)
    return 1 if any(one["violations"] for one in results) else 0


def _open_runs(only: Set[str]) -> Iterator[Run]:
    """Yield the runs that have no result yet, round after round."""
    first_seed = 1
    while True:
        for run in runs(first_seed):
            if (not only or run.experiment.name in only) and not (RESULTS / f"{run.name}.json").exists():
                yield run
        first_seed += 1000


def _execute(run: Run) -> dict[str, Any]:
    began, commit, load = time.time(), _commit(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fairlane-campaign-") as directory:
        try:
            done = subprocess.run(
                run.command(directory),
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            found = _parsed(run, done)
        except subprocess.TimeoutExpired:
            found = {"violations": [f"it did not end within {SECONDS_MAX} s"]}
    return {
        "experiment": run.experiment.name,
        "store": run.store,
        "seed": run.seed,
        "commit": commit,
        "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime(began)),
        "load": round(load, 1),
        "seconds": round(time.time() - began, 1),
        **found,
    }


def _parsed(run: Run, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the figures of a run. One that printed none has failed."""
    if run.experiment.pytest:
        last = done.stdout.strip().splitlines()[-1:] or [""]
        return {"tests": last[0], "violations": [] if done.returncode == 0 else [done.stdout[-3000:]]}
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"violations": [f"exit code {done.returncode}: {done.stderr[-2000:]}"]}
    return {"result": found, "violations": found["violations"]}


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _report() -> list[dict[str, Any]]:
    """Write the merged report, and return all results."""
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    (RESULTS / "report.md").write_text(as_markdown(results))
    return results


if __name__ == "__main__":
    sys.exit(main())
