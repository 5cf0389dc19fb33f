"""The cost of a flush, told apart from the cost of what is in it."""

from __future__ import annotations

import random

import pytest

from fairlane.engine.flush_cost import FlushCost


def test_a_cost_is_not_known_before_flushes_differ() -> None:
    cost = FlushCost()
    for _ in range(100):
        cost.saw(100, 0.1)
    assert cost.item_seconds == 0.0


@pytest.mark.parametrize("fixed", [0.001, 0.2])
def test_an_item_costs_what_it_adds(fixed: float) -> None:
    """However long each flush takes, and though it is not quite the same each time."""
    cost, chance = FlushCost(), random.Random(7)
    for _ in range(200):
        items = chance.randint(1, 2000)
        cost.saw(items, (fixed + 0.0001 * items) * chance.uniform(0.9, 1.1))
    assert cost.item_seconds == pytest.approx(0.0001, rel=0.25)


def test_a_store_that_is_far_away_is_not_one_that_is_used_up() -> None:
    cost, chance = FlushCost(), random.Random(7)
    for _ in range(200):
        cost.saw(chance.randint(1, 20), chance.uniform(0.19, 0.21))
    assert cost.item_seconds * 20 < 0.02


def test_a_cost_follows_changes() -> None:
    cost = FlushCost()
    for each in (0.0001, 0.001):
        for number in range(100):
            cost.saw(100 + 10 * (number % 10), 0.01 + each * (100 + 10 * (number % 10)))
        assert cost.item_seconds == pytest.approx(each, rel=0.1)
