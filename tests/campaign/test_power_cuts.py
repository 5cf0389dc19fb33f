"""A hundred simulated power cuts at random writes and syncs lose nothing that was answered."""

from __future__ import annotations

import pytest

from tests.campaign.power_cuts import cut


@pytest.mark.timeout(300)
@pytest.mark.may_block_loop  # it measures nothing while it computes what is left of the files
async def test_a_hundred_power_cuts_lose_nothing_that_was_answered() -> None:
    result = await cut(seed=1, cuts=100, seconds=4.0)
    assert not result.violations
    assert result.cuts == 100
    assert result.accepted > 1000
    assert result.undone > 100, "the cuts undid too little to prove anything"
