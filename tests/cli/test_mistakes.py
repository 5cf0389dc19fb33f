"""Invalid commands: each is refused with a sentence and an exit code, never with a traceback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from types import SimpleNamespace

import click
import pytest

from fairlane.cli import REFUSED, TRY_AGAIN
from fairlane.cli.main import GROUPS
from tests.cli.commands import arguments_of, choices_of, commands, is_number, options_of, spellings
from tests.cli.conftest import in_process
from tests.cli.test_golden import CLUSTER

COMMANDS = commands()
RUN_ON = {"serve", "poll", "worker run", "verify"}
NOT_ASKED = {
    "backup",
    "restore",
    "migrate",
    "export",
    "import",
    "doctor",
    *CLUSTER,
    "completion",
    "hook sign",
    "spec check",
    "spec compile",
    "spec try",
    "spec schema",
    "spec fmt",
}
NUMBERS = ("x", "", "nan", "1e400", "0x10", "1 2")
TEXTS = ("nothing", "", "-", "a/b", "ü\u202e", "x" * 300, "\x1b[31m", "%s{}", "0-1", "[1", "9" * 30, "\udcff")
ROUNDS = 4
GIVEN = {
    "mirror": "orders --from http://127.0.0.1:1 --to http://127.0.0.1:2",
    "push": "orders 1",
    "ack": "0-1 first",
    "spec plan": "-",
    "spec apply": "-",
    "queue set": "orders max_size=1",
    "key create": "ops --role admin",
    "operation show": "0198c2d1-7a34-7c11-b1f0-3d2f9c6a5e10",
    "schedule set": "beat ticks --every 1m",
}
"""Arguments of commands that do not accept arbitrary words."""


def words_for(name: str) -> list[str]:
    """Return valid arguments of a command."""
    words = name.split()
    for one in COMMANDS[name].params:
        if one.required:
            words += [one.opts[0]] if isinstance(one, click.Option) else []
            words.append(next(iter(choices_of(one)), "1"))
    return words


def wrong_words(name: str) -> Iterator[list[str]]:
    """Yield invalid arguments of a command."""
    command, good = COMMANDS[name], words_for(name)
    arguments = arguments_of(command)
    if any(one.required for one in command.params):
        yield name.split()
    if not any(one.nargs == -1 for one in arguments):
        yield [*good, *["one"] * len(arguments), "too-many"]
    yield [*good, "--no-such-option"]
    yield [*good, "-!"]
    for one in options_of(command):
        if one.is_flag:
            yield [*good, f"{one.opts[0]}=yes"] if one.opts[0].startswith("--") else [*good, "--", *["x"] * 99]
        else:
            yield [*good, one.opts[0]]
            yield from ([*good, one.opts[0], text] for text in _wrong(one))
    for at, argument in enumerate(arguments):
        yield from ([*name.split(), *good[len(name.split()) :][:at], text] for text in _wrong(argument))


def _wrong(one: click.Parameter) -> tuple[str, ...]:
    return ("no-choice", "") if choices_of(one) else NUMBERS if is_number(one) else ()


def check(words: list[str], codes: set[int], input: str = "") -> None:
    code, out, err = in_process(words, input)
    assert code in codes, (words, code, out, err)
    assert "Traceback" not in err, words
    assert err.isascii() or err.isprintable() or "\n" in err
    if code in (REFUSED, TRY_AGAIN):
        assert err.strip() or "--json" in words, words
        assert len(err) < 2000, words


@pytest.mark.parametrize("name", COMMANDS)
def test_words_that_are_no_command_are_refused_in_a_sentence(name: str) -> None:
    for words in wrong_words(name):
        code, out, err = in_process(words)
        assert (code, out) == (REFUSED, ""), (words, err)
        assert err.startswith("fairlane: "), words
        assert err.count("\n") == 1, err


@pytest.mark.parametrize("words", [["nothing"], ["--nothing"], ["--server"], *([group, "nothing"] for group in GROUPS)])
def test_a_command_that_is_not_there_is_refused(words: list[str]) -> None:
    code, out, err = in_process(words)
    assert (code, out, err.count("\n")) == (REFUSED, "", 1), err
    assert err.startswith("fairlane: ")


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - RUN_ON - NOT_ASKED))
def test_a_broker_that_is_away_is_told_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.cli.toolkit.command.RETRY_SECONDS", 0.001)
    monkeypatch.setenv("FAIRLANE_SERVER", "http://127.0.0.1:1")
    words = [*name.split(), *GIVEN[name].split()] if name in GIVEN else words_for(name)
    for flag in ("--yes", "--all"):
        words += [flag] if flag in spellings(COMMANDS[name]) else []
    code, out, err = in_process(words, "app X {}")
    assert (code, out) == (TRY_AGAIN, ""), err
    assert err.startswith("fairlane: cannot reach http://127.0.0.1:1: connection refused\n")
    assert "`fairlane serve` starts one" in err


@pytest.mark.parametrize("server", ["", "nonsense", "ftp://x", "http://", "http://127.0.0.1:x", "http://[", "a,,b"])
def test_a_broker_that_cannot_be_is_told_of(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.cli.toolkit.command.RETRY_SECONDS", 0.001)
    check(["queue", "list", "--server", server], {REFUSED, TRY_AGAIN})


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - RUN_ON - {"doctor"}))
async def test_whatever_is_given_ends_in_a_sentence(name: str, here: SimpleNamespace) -> None:
    """Give unknown names and unusual texts as arguments and as some options."""
    command, chance = COMMANDS[name], random.Random(name)
    for _ in range(ROUNDS):
        words = name.split()
        for argument in arguments_of(command):
            words.append(chance.choice(choices_of(argument) or TEXTS))
        for one in chance.sample(options_of(command), min(3, len(options_of(command)))):
            if one.name in ("server", "follow", "wait"):
                continue
            values = choices_of(one) or (("-1", "0", "9" * 25, "7") if is_number(one) else TEXTS)
            words += [one.opts[0]] if one.is_flag else [one.opts[0], chance.choice(values)]
        await asyncio.to_thread(check, words, {0, 1, REFUSED, TRY_AGAIN}, chance.choice(TEXTS[:-1]))
