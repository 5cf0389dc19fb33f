"""The tables of docs/cli.md, made from the commands themselves: `python -m tests.docs` writes them anew."""

from __future__ import annotations

from pathlib import Path

from fairlane.cli.nouns import commands
from fairlane.cli.usage import usage

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN = "<!-- the commands: python -m tests.docs writes what follows -->\n"
_EVERYWHERE = {"server", "json"}


def written() -> str:
    """The page as it should be."""
    text, begin, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows = ["| command | does | options |", "|---|---|---|"]
    for command in commands():
        shown = [one for one in command.options if one.name not in _EVERYWHERE and not one.declared.hidden]
        options = " ".join(f"`{max(one.names, key=len)}`" for one in shown)
        says = " ".join(command.help.partition("\n\n")[0].split())
        typed = usage(command).replace("|", "\\|")
        rows.append(f"| `{typed}` | {says} | {options} |")
    return text + begin + "\n" + "\n".join(rows) + "\n"
