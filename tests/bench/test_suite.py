"""`python -m bench` runs and reports its results, alone and in turns with another checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.compare import Checkout, Rows, compare, ratios
from bench.results import Comparison, Measurement, Results, percentiles
from bench.suite import Section, Suite
from bench.tables import BEGIN, END, Report, figure, write_between_marks

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[2]
QUICK_CHECKOUT = """
import json, pathlib, sys
output = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
output.mkdir(parents=True)
rates = []
for rate in {rates}:
    print("turn", flush=True)
    sys.stdin.readline()
    rates.append(rate)
    with open({log!r}, "a") as log:
        log.write({name!r})
rounds = [dict(rate=rate, broker_us=rate / 10, store_us=None) for rate in rates]
row = dict(workload="push", system="us", rounds=rounds)
(output / "bench.json").write_text(json.dumps(dict(sections=[dict(name="core", rows=[row])])))
"""


OURS = {"Fairlane, PostgreSQL", "Fairlane, SQLite"}


def measured(tmp_path: Path, section: str) -> dict[tuple[str, str], list[Any]]:
    """Run a section, and return the rounds of each system and workload."""
    ran = subprocess.run(
        [sys.executable, "-m", "bench", section, "--quick", "--output", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    (found,) = json.loads((tmp_path / "bench.json").read_text())["sections"]
    rows = {(row["system"], row["workload"]): row["rounds"] for row in found["rows"]}
    assert all(one["rate"] > 0 for rounds in rows.values() for one in rounds)
    return rows


def test_a_section_is_measured_and_reported_in_json_and_markdown(tmp_path: Path) -> None:
    rows = measured(tmp_path, "core")
    assert {system for system, _ in rows} == OURS
    assert ("Fairlane, SQLite", "push 1") in rows
    assert ("Fairlane, SQLite", "pop 100 + ack") in rows
    page = (tmp_path / "bench.md").read_text()
    assert "fsync=on" in page
    assert "| push 1 | Fairlane, SQLite |" in page


@pytest.mark.timeout(300)
def test_a_broker_in_the_process_is_measured_beside_tables(tmp_path: Path) -> None:
    rows = measured(tmp_path, "embedded")
    assert {system for system, _ in rows} >= OURS | {"SQLite table"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--quick", "--write"], "leave out --quick or --write"),
        (["--against", ".", "--write"], "leave out --against or --write"),
        (
            ["htp"],
            "there is no section 'htp'; choose from core, http, clients, embedded, jobs, enqueue, delivery, growth",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: list[str], error: str) -> None:
    ran = subprocess.run([sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2
    assert error in ran.stderr


def checkout(tmp_path: Path, name: str, rates: list[float]) -> Path:
    """Make a checkout whose benchmark measures these rates, and logs its name for each."""
    tree = tmp_path / name
    (tree / "bench").mkdir(parents=True)
    (tree / "bench/__init__.py").touch()
    (tree / "bench/compare.py").touch()
    log = str(tmp_path / "log")
    (tree / "bench/__main__.py").write_text(QUICK_CHECKOUT.format(rates=rates, name=name, log=log))
    python = tree / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return tree


async def test_two_checkouts_are_measured_in_turns_and_compared(tmp_path: Path) -> None:
    this, other = checkout(tmp_path, "t", [100, 300, 200, 400]), checkout(tmp_path, "o", [100, 100, 100, 100])
    table = await compare(this, other, ["core"], tmp_path / "build")
    assert (tmp_path / "log").read_text() == "toottoot", "next to each other, and neither always first"
    assert list(table.rows) == [["core", "push", "us", "250", "100", "2.500", "1.00 to 4.00", "2.500"]]
    assert "| core | push | us | 250 |" in (tmp_path / "build/compare.md").read_text()


async def test_a_checkout_without_such_a_benchmark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="copy bench/ of this checkout there"):
        await Checkout(tmp_path, tmp_path / "build").start(Path(sys.executable), [])


async def test_a_benchmark_that_fails_ends_the_comparison(tmp_path: Path) -> None:
    this, other = checkout(tmp_path, "t", [1, 2]), checkout(tmp_path, "o", [1])
    (other / "bench/__main__.py").write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match="exit code 3"):
        await compare(this, other, ["core"], tmp_path / "build")


def test_only_rows_that_both_checkouts_have_and_measured_are_compared() -> None:
    def row(workload: str, rate: float) -> Rows:
        return {("http", workload, "us"): [{"rate": rate, "broker_us": None, "store_us": None}]}

    mine, theirs = row("push", 3) | row("new", 1) | row("recorded", 1), row("push", 2) | row("recorded", 1)
    assert list(ratios(mine, theirs).rows) == [["http", "push", "us", "3", "2", "1.500", "1.50 to 1.50", "-"]]


def test_medians_are_shown_with_the_lowest_and_highest_round() -> None:
    page = report().markdown()
    assert "| push | us | 200 (100 to 900) | 3 + 1 + - |" in page
    assert "| push | them | 50 | - |" in page
    assert page.index("| push | them |") < page.index("| pop | us |"), "systems of one workload stand together"


def test_comparisons_are_shown_with_their_basis() -> None:
    postgres, sqlite = "Fairlane, PostgreSQL", "Fairlane, SQLite"
    page = report(
        Comparison("push", postgres, 4.0, "rate of them"),
        Comparison("push", sqlite, 0.5, "rate of them"),
        Comparison("push", sqlite, 0.5, "rate of the HTTP ceiling"),
        Comparison("jobs", f"{postgres}, ordered", None, "CPU"),
    ).markdown()
    assert "| push | rate of them | 4x | **0.5x** |" in page, "both stores in one row, and losses in bold"
    assert "| push | rate of the HTTP ceiling | - | 0.5x |" in page
    assert "| jobs, ordered | CPU | - | - |" in page


def test_a_chart_has_a_bar_for_each_system_on_the_scale_of_its_workload(tmp_path: Path) -> None:
    made = report()
    made.write_charts(tmp_path)
    assert "(images/bench-one.svg)" in made.markdown()
    chart = ElementTree.parse(tmp_path / "images/bench-one.svg").getroot()
    texts = [text.text for text in chart.iter(f"{SVG}text")]
    assert texts == ["push (messages per second)", "us", "200", "them", "50", "pop (messages per second)", "us", "1"]
    _card, *bars = (float(bar.get("width", 0)) for bar in chart.iter(f"{SVG}rect"))
    most = bars[2]
    assert bars == [pytest.approx(most * 200 / 900, rel=0.01), pytest.approx(most * 50 / 900, rel=0.01), most]


def test_prose_of_the_page_is_wrapped() -> None:
    made = report()
    made.facts = ["word " * 50]
    lines = [line for line in made.markdown().splitlines() if not line.startswith("|")]
    assert max(len(line) for line in lines) <= 100


def test_a_ratio_with_a_missing_side_is_unknown() -> None:
    results = Results()
    results.add("push", "us", Measurement(rate=4))
    results.add("push", "them", Measurement(rate=2))
    assert results.ratio(("push", "us"), ("push", "them")) == 2
    assert results.ratio(("push", "us"), ("push", "nobody")) is None
    assert results.ratio(("push", "us"), ("push", "them"), "p99") is None


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0912, "0.0912"), (4.5, "4.50"), (12.34, "12.3"), (98.0, "98"), (12345.6, "12,346")]
)
def test_figures_have_three_significant_digits_or_all_before_the_point(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_percentiles_are_those_of_the_sorted_values() -> None:
    assert percentiles([float(value) for value in range(1000, 0, -1)]) == (501, 991, 1000)
    assert percentiles([7.0]) == (7, 7, 7)


def test_figures_are_written_between_the_marks_of_the_page(tmp_path: Path) -> None:
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


async def nothing(suite: Suite) -> Results:
    return Results()


def report(*comparisons: Comparison) -> Report:
    results = Results(comparisons=list(comparisons))
    for rate in (100, 200, 900):
        results.add("push", "us", Measurement(rate=rate, client_us=3, broker_us=1))
    results.add("pop", "us", Measurement(rate=1))
    results.add("push", "them", Measurement(rate=50))
    return Report("python -m bench", ["Commit 1."], [(Section("one", "One", "quiet", nothing), results)])
