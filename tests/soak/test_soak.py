"""A short soak on each store, and the bounds that it checks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.soak.samples import MEBIBYTE, Sample, leaks


def sample(number: int, *, rss: float = 60, files: int = 40, store: float = 20) -> Sample:
    return Sample(number * 60.0, int(rss * MEBIBYTE), files, int(store * MEBIBYTE), 0.3, number * 1000, 0.01, 0.05)


def test_steady_values_are_no_leak() -> None:
    assert leaks([sample(number) for number in range(60)]) == []


def test_growth_at_the_start_is_no_leak() -> None:
    assert (
        leaks([sample(number, rss=min(10 + 10 * number, 70), files=min(5 * number, 40)) for number in range(60)]) == []
    )


@pytest.mark.parametrize(
    ("samples", "what"),
    [
        ([sample(number, rss=60 + 2 * number) for number in range(60)], "memory"),
        ([sample(number, files=40 + number) for number in range(60)], "descriptors"),
        ([sample(number, store=20 + 3 * number) for number in range(60)], "store"),
    ],
)
def test_steady_growth_is_a_leak(samples: list[Sample], what: str) -> None:
    [found] = leaks(samples)
    assert what in found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_few_seconds_of_soak_lose_and_reorder_nothing(store: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--store", store, "--minutes", "0.2"],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    assert "median time to the handler" in run.stdout
