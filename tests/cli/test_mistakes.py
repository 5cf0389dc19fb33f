"""Mistakes of whoever types a command: each is told in a sentence, with an exit code, and never by a traceback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from fairlane.cli import REFUSED, TRY_AGAIN
from fairlane.cli.command import REQUIRED, Command, Parameter
from fairlane.cli.nouns import NOUNS, commands
from tests.cli.conftest import in_process

COMMANDS = {one.name: one for one in commands()}
RUN_ON = {"serve", "poll", "worker run"}
NOT_ASKED = {"doctor", "completion", "hook sign", "spec check", "spec compile", "spec try", "spec schema", "spec fmt"}
NUMBERS = ("x", "", "nan", "1e400", "0x10", "1 2")
TEXTS = ("nothing", "", "-", "a/b", "ü\u202e", "x" * 300, "\x1b[31m", "%s{}", "0-1", "[1", "9" * 30, "\udcff")
ROUNDS = 4
GIVEN = {
    "push": "orders 1",
    "ack": "0-1 first",
    "spec plan": "-",
    "spec apply": "-",
    "queue set": "orders max_size=1",
    "key create": "ops --role admin",
    "operation show": "0198c2d1-7a34-7c11-b1f0-3d2f9c6a5e10",
    "schedule set": "beat ticks --every 1m",
}
"""Where any word would not do."""


def words_for(command: Command) -> list[str]:
    """Words with which a command could run."""
    words = command.name.split()
    for one in command.parameters:
        if one.default is REQUIRED:
            words += [one.names[0]] if one.declared.is_option else []
            words.append(one.choices[0] if one.choices else "1")
    return words


def wrong_words(command: Command) -> Iterator[list[str]]:
    """Words by which no command can run."""
    good, name = words_for(command), command.name.split()
    if any(one.default is REQUIRED for one in command.parameters):
        yield name
    if not any(one.many for one in command.arguments):
        yield [*good, *["one"] * len(command.arguments), "too-many"]
    yield [*good, "--no-such-option"]
    yield [*good, "-!"]
    for one in command.options:
        if one.kind is bool:
            yield [*good, f"{one.names[0]}=yes"] if one.names[0].startswith("--") else [*good, "--", *["x"] * 99]
        else:
            yield [*good, one.names[0]]
            yield from ([*good, one.names[0], text] for text in _wrong(one))
    for at, one in enumerate(command.arguments):
        yield from ([*name, *good[len(name) :][:at], text] for text in _wrong(one))


def _wrong(one: Parameter) -> tuple[str, ...]:
    return ("no-choice", "") if one.choices else NUMBERS if one.kind in (int, float) else ()


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
    for words in wrong_words(COMMANDS[name]):
        code, out, err = in_process(words)
        assert (code, out) == (REFUSED, ""), (words, err)
        assert err.startswith("fairlane: "), words
        assert err.count("\n") == 1, err


@pytest.mark.parametrize("words", [["nothing"], ["--nothing"], ["--server"], *([noun, "nothing"] for noun in NOUNS)])
def test_a_command_that_is_not_there_is_refused(words: list[str]) -> None:
    code, out, err = in_process(words)
    assert (code, out, err.count("\n")) == (REFUSED, "", 1), err
    assert err.startswith("fairlane: ")


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - RUN_ON - NOT_ASKED))
def test_a_broker_that_is_away_is_told_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.cli.verb.RETRY_SECONDS", 0.001)
    monkeypatch.setenv("FAIRLANE_SERVER", "http://127.0.0.1:1")
    words = [*name.split(), *GIVEN[name].split()] if name in GIVEN else words_for(COMMANDS[name])
    for flag in ("--yes", "--all"):
        words += [flag] if any(flag in one.names for one in COMMANDS[name].options) else []
    code, out, err = in_process(words, "app X {}")
    assert (code, out) == (TRY_AGAIN, ""), err
    assert err.startswith("fairlane: cannot reach http://127.0.0.1:1: connection refused\n")
    assert "`fairlane serve` starts one" in err


@pytest.mark.parametrize("server", ["", "nonsense", "ftp://x", "http://", "http://127.0.0.1:x", "http://[", "a,,b"])
def test_a_broker_that_cannot_be_is_told_of(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.cli.verb.RETRY_SECONDS", 0.001)
    check(["queue", "list", "--server", server], {REFUSED, TRY_AGAIN})


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - RUN_ON - {"doctor"}))
async def test_whatever_is_given_ends_in_a_sentence(name: str, here: SimpleNamespace) -> None:
    """Names of nothing, and texts that nobody would type, for each argument and some options."""
    command, chance = COMMANDS[name], random.Random(name)
    for _ in range(ROUNDS):
        words = name.split()
        for one in command.arguments:
            words.append(chance.choice(one.choices or TEXTS))
        for one in chance.sample(command.options, min(3, len(command.options))):
            if one.name in ("server", "follow", "wait"):
                continue
            values = one.choices or (("-1", "0", "9" * 25, "7") if one.kind in (int, float) else TEXTS)
            words += [one.names[0]] if one.kind is bool else [one.names[0], chance.choice(values)]
        await asyncio.to_thread(check, words, {0, 1, REFUSED, TRY_AGAIN}, chance.choice(TEXTS[:-1]))
