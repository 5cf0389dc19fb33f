"""Help texts of commands, as `--help` prints them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from fairlane.cli.command import REQUIRED, Command, Parameter

_WIDTH_MAX = 100
_TITLE_MAX = 30
_HELP = ("-h, --help", "Show this and exit.")


def of_command(command: Command) -> str:
    arguments = [(one.metavar, one.declared.help) for one in command.arguments]
    groups: dict[str, list[tuple[str, str]]] = {}
    for one in command.options:
        if not one.declared.hidden:
            groups.setdefault(one.declared.group, []).append((_title(one), _explained(one)))
    groups.setdefault("Options", []).append(_HELP)
    parts = [f"Usage: {usage(command)} [OPTIONS]", _indented(command.help), *_section("Arguments", arguments)]
    return _joined([*parts, *(part for title, rows in groups.items() for part in _section(title, rows))])


def of_commands(
    name: str, help: str, commands: Mapping[str, Iterable[tuple[str, str]]], options: Sequence[Parameter], end: str = ""
) -> str:
    """The help of what has commands beneath it, which are given by the title that they stand under."""
    listed = [part for title, rows in commands.items() for part in _section(title, rows)]
    explained = [*((_title(one), _explained(one)) for one in options), _HELP]
    parts = [f"Usage: {name} COMMAND [ARGUMENTS] [OPTIONS]", _indented(help), *listed, *_section("Options", explained)]
    return _joined([*parts, *([_indented(end)] if end else [])])


def usage(command: Command) -> str:
    """The command with its arguments: in brackets those that may be left out."""
    words = [f"fairlane {command.name}"]
    for one in command.arguments:
        word = f"{one.metavar}..." if one.many else one.metavar
        words.append(word if one.default is REQUIRED else f"[{word}]")
    return " ".join(words)


def short(help: str) -> str:
    """The first sentence of a help."""
    text = " ".join(help.partition("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".") + "."


def _title(one: Parameter) -> str:
    names = sorted(one.names, key=len) + one.negations
    return ", ".join(names) + ("" if one.kind is bool else f" {one.metavar}")


def _explained(one: Parameter) -> str:
    default = one.default if one.declared.shown is None else one.declared.shown
    notes = [f"from {one.declared.envvar}" if one.declared.envvar else "", "required" if default is REQUIRED else ""]
    if default is not REQUIRED and default not in (None, "", False, True):
        notes.append(f"default {default}")
    joined = "; ".join(note for note in notes if note)
    return f"{one.declared.help} [{joined}]" if joined else one.declared.help


def _width() -> int:
    return min(_WIDTH_MAX, shutil.get_terminal_size().columns)


def _indented(help: str) -> str:
    """The paragraphs of a help; one that is indented is an example, and stays as it is."""
    texts = [part if part.startswith(" ") else textwrap.fill(part, _width() - 2) for part in help.split("\n\n")]
    return "\n\n".join(textwrap.indent(text, "  ") for text in texts)


def _section(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    if not rows:
        return []
    room = min(_TITLE_MAX, max(len(head) for head, _ in rows)) + 2
    lines = [f"{title}:"]
    for head, text in rows:
        folded = textwrap.wrap(text, max(20, _width() - room - 2)) or [""]
        if len(head) + 2 > room:
            lines.append(f"  {head}")
        else:
            lines.append(f"  {head:<{room}}{folded.pop(0)}".rstrip())
        lines += [f"  {'':<{room}}{more}" for more in folded]
    return ["\n".join(lines)]


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"
