"""`fairlane completion`: the commands for a shell, so that it completes those of fairlane."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from fairlane.cli.verb import arg
from fairlane.errors import InvalidRequest

_SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FAIRLANE_COMPLETE"


def completion(shell: Annotated[str, arg("bash|zsh|fish", "The shell.")]) -> None:
    """Print what a shell must run to complete commands: `source <(fairlane completion bash)`."""
    if shell not in _SHELLS:
        raise InvalidRequest(f"completion is for {', '.join(_SHELLS)}, not {shell!r:.40}")
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    sys.stdout.write(get_completion_script(prog_name="fairlane", complete_var=VARIABLE, shell=shell) + "\n")


def prepare() -> None:
    """Let this process answer the shell that asks for completions, if one does."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
