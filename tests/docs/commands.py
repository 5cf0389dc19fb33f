"""The tables of docs/cli.md, made from the commands themselves: `python -m tests.docs.commands` writes them anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from fairlane.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN = "<!-- the commands: python -m tests.docs.commands writes what follows -->\n"
_EVERYWHERE = {"server", "json", "help"}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        verbs = getattr(command, "commands", None)
        if verbs is None:
            yield name, command
        else:
            yield from ((f"{name} {verb}", one) for verb, one in verbs.items())


def written() -> str:
    """The page as it should be."""
    text, begin, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows = ["| command | does | options |", "|---|---|---|"]
    for name, command in commands():
        given = [one for one in command.params if one.param_type_name == "argument"]
        options = [
            one.opts[0] for one in command.params if one.param_type_name == "option" and one.name not in _EVERYWHERE
        ]
        usage = " ".join([f"fairlane {name}", *(one.metavar or one.name.upper() for one in given)]).replace("|", "\\|")
        says = " ".join((command.help or "").split("\n\n")[0].split())
        rows.append(f"| `{usage}` | {says} | {' '.join(f'`{one}`' for one in options)} |")
    return text + begin + "\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
