"""docs/cli.md has every command, as defined in the code."""

from __future__ import annotations

import pytest

from tests.cli.commands import commands, spellings
from tests.docs.commands import PAGE, written


def test_the_page_has_the_table_that_the_commands_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run `python -m tests.docs`"


@pytest.mark.parametrize("name", commands())
def test_a_command_says_what_it_does_and_prints_json_if_it_answers(name: str) -> None:
    command = commands()[name]
    assert command.help
    assert all(one.help for one in command.params if not getattr(one, "hidden", False))
    assert "--json" in spellings(command) or name in {"serve", "poll", "completion", "export", "worker run"}
