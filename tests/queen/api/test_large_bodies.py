"""Bodies of streams with too many items."""

from __future__ import annotations

from fairlane.queen.wire.streams import CycleBody
from tests.http.test_large_bodies import ITEM, check_counted


def test_items_of_a_cycle_are_counted_and_not_decoded() -> None:
    check_counted(CycleBody, "push_items", ITEM)
