"""The options of `fairlane serve`."""

from __future__ import annotations

from fairlane.cli.commands.serve import GROUPS
from fairlane.config import flags


def test_every_option_stands_under_a_title() -> None:
    grouped = [name for some in GROUPS.values() for name in some.split()]
    assert sorted(grouped) == sorted(flags())
