"""Two minutes of random faults on each store and a thousand simulated power cuts, for `make faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.power_cuts import cut
from tests.history.test_slice import SECONDS_MAX, play

MINUTES = 2
CUTS = 1000


@pytest.mark.timeout(60 * MINUTES + SECONDS_MAX)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "cells"])
def test_two_minutes_of_random_faults_break_no_promise(store: str, tmp_path: Path) -> None:
    play(store, tmp_path, minutes=MINUTES)


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.may_block_loop
async def test_a_thousand_power_cuts_lose_nothing_that_was_answered() -> None:
    result = await cut(seed=1, cuts=CUTS)
    assert not result.violations
    assert result.cuts == CUTS
