"""Ten minutes of random faults on each store, for `make faults`."""

from __future__ import annotations

import pytest

from tests.history.test_slice import SECONDS_MAX, play

SECONDS = 600


@pytest.mark.timeout(SECONDS + SECONDS_MAX)
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_ten_minutes_of_random_faults_break_no_promise(store: str) -> None:
    play(store, seconds=SECONDS)
