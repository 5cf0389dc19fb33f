"""All click commands and their parameters."""

from __future__ import annotations

from collections.abc import Iterator

import click

from fairlane.cli.main import COMMANDS, GROUPS, cli


def commands() -> dict[str, click.Command]:
    """Return every command by its full name, such as `queue list`."""
    return dict(_commands())


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command
    for group_name in GROUPS:
        group = cli.get_command(context, group_name)
        assert isinstance(group, click.Group)
        yield from ((f"{group_name} {name}", command) for name, command in group.commands.items())


def options_of(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option)]


def arguments_of(command: click.Command) -> list[click.Argument]:
    return [one for one in command.params if isinstance(one, click.Argument)]


def spellings(command: click.Command) -> set[str]:
    """Return every name of every option."""
    return {name for one in options_of(command) for name in one.opts + one.secondary_opts}


def choices_of(parameter: click.Parameter) -> tuple[str, ...]:
    return tuple(parameter.type.choices) if isinstance(parameter.type, click.Choice) else ()


def is_number(parameter: click.Parameter) -> bool:
    return isinstance(parameter.type, click.types._NumberParamTypeBase)
