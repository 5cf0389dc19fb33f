"""`python -m bench` runs, and tells what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.figures import Findings, Run, Target, figure
from bench.publish import BEGIN, END, Report, write_between_marks
from bench.suite import Section, Suite

ROOT = Path(__file__).parents[2]


def test_a_section_is_measured_and_told_in_json_and_markdown(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "limits", "--output", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "bench.json").read_text())
    (section,) = told["sections"]
    systems = {(row["system"], row["workload"]): row["rounds"] for row in section["rows"]}
    assert {system for system, _ in systems} == {"the disk", "bare asyncpg", "bare apsw"}
    assert all(run["rate"] > 0 for rounds in systems.values() for run in rounds)
    (push,) = systems["bare asyncpg", "push 100 over 100 partitions, a row each"]
    assert push["store_us"] > 0
    assert push["wal"] > 98, "a message is in the log"
    page = (tmp_path / "bench.md").read_text()
    assert "PostgreSQL" in page
    assert "bare apsw" in page
    assert "0 of 0 targets hold" in ran.stdout


def test_a_try_is_not_written_to_the_page() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--write"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert "leave out --quick, or --write" in ran.stderr


@pytest.mark.parametrize(
    ("value", "at_most", "said"),
    [
        (2.0, False, "holds"),
        (1.5, False, "MISSED by 25%"),
        (3.0, True, "MISSED by 50%"),
        (2.0, True, "holds"),
        (None, False, "NOT MEASURED"),
    ],
)
def test_a_target_is_told_with_by_how_much_it_was_missed(value: float | None, at_most: bool, said: str) -> None:
    target = Target("rate", "us", value, 2.0, "x", at_most=at_most)
    assert said in target.verdict
    assert target.holds == (said == "holds")
    assert said in report(target).markdown()


def test_a_bound_of_nothing_can_be_missed() -> None:
    assert "MISSED by 3" in Target("lost", "us", 3, 0, at_most=True).verdict
    assert Target("lost", "us", 0, 0, at_most=True).holds


def test_medians_stand_beside_the_lowest_and_highest_round() -> None:
    page = report(Target("rate", "us", 1.0, 2.0)).markdown()
    assert "| push | us | 200 messages | 100 to 900 | 3 + 1 + - |" in page
    assert "| push | them | 50 messages | 50 to 50 | - |" in page
    assert page.index("| push | them |") < page.index("| pop | us |"), "systems of one workload stand together"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0912, "0.0912"), (4.5, "4.50"), (12.34, "12.3"), (98.0, "98"), (12345.6, "12,346")]
)
def test_figures_have_as_many_digits_as_mean_something(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_figures_are_written_where_the_page_has_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text((ROOT / "docs/benchmarks.md").read_text(encoding="utf-8"), encoding="utf-8")
    for text in ("first \\1", "second"):
        write_between_marks(page, text)
        now = page.read_text(encoding="utf-8")
        assert f"{BEGIN}\n\n{text}\n{END}" in now
    assert "first" not in now.partition(BEGIN)[2].partition(END)[0]
    assert now.partition(END)[2] == (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8").partition(END)[2]
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="has them 0 times"):
        write_between_marks(page, "third")


async def nothing(suite: Suite) -> Findings:
    return Findings()


def report(*targets: Target) -> Report:
    found = Findings(targets=list(targets))
    for rate in (100, 200, 900):
        found.add("push", "us", Run(rate=rate, client_us=3, broker_us=1))
    found.add("pop", "us", Run(rate=1))
    found.add("push", "them", Run(rate=50))
    return Report("python -m bench", ["Commit 1."], [(Section("one", "One", "quiet", nothing), found)])
