"""The results of a campaign on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.campaign.page import BEGIN, END, PAGE, write_results


def run(store: str, **result: Any) -> dict[str, Any]:
    return {
        "experiment": "all",
        "store": store,
        "seed": 1,
        "commit": "abc",
        "at": "2026-11-19 23:20",
        "seconds": 100.0,
        "load": 0.4,
        "violations": [],
        "result": result,
    }


def verified(store: str, trials: int) -> dict[str, Any]:
    return run(
        store,
        minutes=5,
        promises=[{"promise": "G1 durable", "trials": trials, "violations": 0}],
        faults={"kill_broker": 2},
        recovery_seconds={"kill_broker": [0.1, 0.3]},
        versions={"PostgreSQL": "18.4"},
    )


RESULTS = [
    *(verified("sqlite", 1000), verified("postgres", 2000)),
    run("sqlite", **{name: {"count": 30, "p50": 0.3, "p99": 0.5, "max": 0.6} for name in ("recovery", "takeover")}),
    run("sqlite", cuts=1000, undone=12_345, accepted=6_000),
]


def test_the_results_replace_those_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_results(page, RESULTS)
    write_results(page, RESULTS)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "10 minutes of random faults: no violation. The load before the runs was 0.4 to 0.4." in text.replace(
        "\n", " "
    )
    assert "| G1 durable | 1,000 | 2,000 | 0 | ≤ 0.10 % | 0 |" in text
    assert "| `kill_broker` | 2 | 2 |  |" in text
    assert "| SQLite | kill -9 of the only broker, to a push | 30 | 0.30 s | 0.50 s | 0.60 s |" in text
    assert "| PostgreSQL | kill -9 of one broker of three, to a push | 2 | 0.30 s | 0.30 s | 0.30 s |" in text
    assert "fewer than 0.30 % of such cuts lose something" in text.replace("\n", " ")


def test_the_page_has_a_place_for_the_results(tmp_path: Path) -> None:
    text = PAGE.read_text()
    assert 0 <= text.find(BEGIN) < text.find(END)
    (tmp_path / "page.md").write_text("no place\n")
    with pytest.raises(ValueError, match="must have"):
        write_results(tmp_path / "page.md", RESULTS)
