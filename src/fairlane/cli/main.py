"""`fairlane ...`"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

from fairlane.cli import INTERRUPTED, REFUSED, TRY_AGAIN, Exit
from fairlane.cli.command import Command, Parameter, is_option, opt
from fairlane.cli.nouns import NOUNS, VERBS, noun, verb
from fairlane.errors import FairlaneError, InvalidRequest

COMPLETING = "_FAIRLANE_COMPLETE"
"""Set by the shell that asks what the words may go on with, as `completion.py` tells it to."""
_ABOUT = "Fairlane: a durable, ordered message queue on the SQL database you already run."
_CODES = "Exit codes: 0 done, 1 nothing found, 2 wrong or refused, 75 try again later."
_SERVER = opt(
    "The broker. It may stand behind the command too.", "-s", "--server", metavar="URL", envvar="FAIRLANE_SERVER"
)
_LEADING = [
    Parameter("server", Annotated[str | None, _SERVER], None),
    Parameter("insecure", Annotated[bool, opt("Send a key also unencrypted to other machines.", "--insecure")], False),
    Parameter("version", Annotated[bool, opt("Print the version and exit.", "--version")], False),
]
_HELP = Parameter("help", Annotated[bool, opt("", "--help", "-h")], False)


def run(words: Sequence[str]) -> None:
    """Run a command by the words behind `fairlane`."""
    if COMPLETING in os.environ:
        from fairlane.cli.completion import complete

        complete(words)
        return
    known, words = _leading(words)
    if known.pop("insecure", False):
        os.environ["FAIRLANE_INSECURE"] = "1"  # for what this command starts, too
    if known.get("version"):
        from importlib.metadata import version

        sys.stdout.write(f"fairlane {version('fairlane')}\n")
    elif not words or known.get("help"):
        _show_all(asked="help" in known)
    elif words[0] in VERBS:
        _run(verb(words[0]), words[1:], known)
    elif words[0] in NOUNS:
        _run_noun(words[0], words[1:], known)
    else:
        _refuse("", words[0], [*VERBS, *NOUNS])


def _run_noun(name: str, words: Sequence[str], known: dict[str, Any]) -> None:
    found = noun(name)
    if found.otherwise and words and words[0] not in (*found.verbs, *_HELP.names):
        _run(found.verbs[found.otherwise], words, known)
        return
    more, words = _leading(words, name)
    if not words or more.get("help"):
        _show_noun(name, asked="help" in more)
    elif words[0] not in found.verbs:
        _refuse(name, words[0], found.verbs)
    else:
        _run(found.verbs[words[0]], words[1:], known | more)


def _run(command: Command, words: Sequence[str], known: dict[str, Any]) -> None:
    before = words[: words.index("--")] if "--" in words else words
    if any(name in before for name in _HELP.names):
        from fairlane.cli.usage import of_command

        sys.stdout.write(of_command(command))
    else:
        command(words, known)


def _leading(words: Sequence[str], name: str = "") -> tuple[dict[str, Any], list[str]]:
    """Options before a noun or verb, and the words from there on."""
    options = Command(name, _run_noun, None, lambda: [*_LEADING, _HELP])
    values: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if not is_option(word):
            return values, [word, *rest]
        options.take(word, rest, values)
    return values, []


def _show_all(*, asked: bool) -> None:
    from fairlane.cli.usage import of_commands, short

    verbs = [(name, short(verb(name).help)) for name in VERBS]
    titles = {"Commands": verbs, "Nouns, each with verbs of its own": NOUNS.items()}
    _show(of_commands("fairlane", _ABOUT, titles, _LEADING, _CODES), asked)


def _show_noun(name: str, *, asked: bool) -> None:
    from fairlane.cli.usage import of_commands, short

    verbs = [(name, short(command.help)) for name, command in noun(name).verbs.items()]
    _show(of_commands(f"fairlane {name}", NOUNS[name], {"Commands": verbs}, ()), asked)


def _show(help: str, asked: bool) -> None:
    """Who gave no command gets the help as well, and a code by which a script notices."""
    (sys.stdout if asked else sys.stderr).write(help)
    if not asked:
        raise Exit(REFUSED)


def _refuse(name: str, word: str, known: Any) -> NoReturn:
    from fairlane.spec.text.source import suggestion

    where = f"fairlane {name}".rstrip()
    raise InvalidRequest(f"there is no `{where} {word:.80}`; {suggestion(word, known)}")


def main() -> NoReturn:
    sys.exit(ended(sys.argv[1:]))


def ended(words: Sequence[str]) -> int:
    """Run a command to its end; its exit code."""
    # A payload may have letters that the terminal has not.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        run(words)
        sys.stdout.flush()
    except Exit as end:
        return end.code
    except FairlaneError as error:
        sys.stderr.write(f"fairlane: {error}\n")
        return TRY_AGAIN if error.retryable else REFUSED
    except BrokenPipeError:  # who read it has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
