"""Five minutes of random faults on each store, for `make faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.test_slice import SECONDS_MAX, play

MINUTES = 5


@pytest.mark.timeout(60 * MINUTES + SECONDS_MAX)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_five_minutes_of_random_faults_break_no_promise(store: str, tmp_path: Path) -> None:
    play(store, tmp_path, minutes=MINUTES)
