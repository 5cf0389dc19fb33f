"""`fairlane completion`: print shell completion scripts."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import click

from fairlane.cli.toolkit.command import CommandGroup, arg, command

app = CommandGroup()


@command(app)
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], arg(None, "The shell.")]) -> None:
    """Print a completion script for a shell. Load it with `source <(fairlane completion bash)`."""
    from click.shell_completion import get_completion_class

    shells = get_completion_class(shell)
    assert shells is not None
    root = click.get_current_context().find_root()
    sys.stdout.write(shells(root.command, {}, "fairlane", "_FAIRLANE_COMPLETE").source())
