"""docs/cli.md has every command, as the commands themselves tell it."""

from __future__ import annotations

import pytest

from fairlane.cli.command import Command
from fairlane.cli.nouns import commands
from tests.docs.commands import PAGE, written


def test_the_page_has_the_table_that_the_commands_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run `python -m tests.docs`"


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.name)
def test_a_command_says_what_it_does_and_prints_json_if_it_answers(command: Command) -> None:
    assert command.help
    assert all(one.declared.help for one in command.parameters if not one.declared.hidden)
    options = {name for one in command.options for name in one.names}
    assert "--json" in options or command.name in {"serve", "poll", "completion", "worker run"}
