"""The tables of docs/cli.md, generated from the commands. `python -m tests.docs` rewrites them."""

from __future__ import annotations

from pathlib import Path

import click

from tests.cli.commands import commands, options_of

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN = "<!-- the commands: python -m tests.docs writes what follows -->\n"
_EVERYWHERE = {"server", "json"}


def written() -> str:
    """Return the page with up-to-date tables."""
    text, begin, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows = ["| command | does | options |", "|---|---|---|"]
    for name, command in commands().items():
        shown = [one for one in options_of(command) if one.name not in _EVERYWHERE and not one.hidden]
        options = " ".join(f"`{max(one.opts, key=len)}`" for one in shown)
        says = " ".join((command.help or "").partition("\n\n")[0].split())
        words = [
            word
            for word in command.collect_usage_pieces(click.Context(command, help_option_names=["-h", "--help"]))
            if word != "[OPTIONS]"
        ]
        typed = " ".join(["fairlane", name, *words]).replace("|", "\\|")
        rows.append(f"| `{typed}` | {says} | {options} |")
    return text + begin + "\n" + "\n".join(rows) + "\n"
