"""Backoff: delays double up to a maximum, with jitter in their upper half."""

from __future__ import annotations

import pytest

from fairlane.outbound.client import FIRST_SECONDS
from fairlane.runtime.backoff import backoff


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.2), (2, 0.4), (3, 0.8), (4, 1.6), (9, 30.0), (10_000, 30.0)])
def test_calls_of_handlers_and_pollers_wait_200_400_800_ms_and_so_on_with_jitter(failures: int, seconds: float) -> None:
    found = [backoff(failures, base=FIRST_SECONDS, most=30.0) for _ in range(200)]
    assert seconds / 2 <= min(found) < max(found) <= seconds
