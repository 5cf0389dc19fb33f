"""The seeds of `make fuzz`, as they are and with small changes. Every past finding is a seed."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.parsers import CORPUS, TARGETS

CHANGES = 40


def test_every_parser_has_seeds() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_parser_reads_or_refuses_whatever_comes(name: str) -> None:
    chance = random.Random(name)
    target = TARGETS[name]
    for path in sorted((CORPUS / name).iterdir()):
        seed = path.read_bytes()
        target(seed)
        for _ in range(CHANGES if len(seed) < 2000 else 2):
            target(changed(seed, chance))


def changed(data: bytes, chance: random.Random) -> bytes:
    at, size = chance.randrange(len(data) + 1), chance.randrange(9)
    some = chance.choice(
        [b"", chance.randbytes(size), data[at : at + size] * 3, b"\x00", b'"', b"{", b"-1", b"\xff" * size]
    )
    return data[:at] + some + data[at + chance.randrange(4) :]
