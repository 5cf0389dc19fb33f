"""docs/cli.md has every command, as the commands themselves tell it."""

from __future__ import annotations

import pytest

from tests.docs.commands import PAGE, commands, written


def test_the_page_has_the_table_that_the_commands_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run `python -m tests.docs.commands`"


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_a_command_says_what_it_does_and_prints_json_if_it_answers(name: str) -> None:
    command = dict(commands())[name]
    assert command.help
    silent = {"serve", "poll", "completion", "worker run", "hook sign", "spec check", "spec compile", "spec try"}
    options = {option for one in command.params for option in one.opts}
    assert "--json" in options or name in silent | {"spec schema", "spec fmt"}
