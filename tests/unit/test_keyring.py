"""The operator's keys."""

from __future__ import annotations

import base64
import os

import pytest

from fairlane.errors import InvalidRequest, SealError
from fairlane.store import keyring
from fairlane.store.keyring import Keyring

CANARY = "canary"
OLD, NEW = os.urandom(32), os.urandom(32)


@pytest.mark.parametrize("text", ["x", "00" * 32, "ab" * 16, base64.b64encode(b"short").decode()])
def test_a_key_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Keyring.parse(text)


def test_nonces_do_not_repeat_and_what_is_sealed_locally_survives_a_rotation() -> None:
    ring = Keyring.parse(f"{OLD.hex()}, {base64.b64encode(NEW).decode()}")
    local = ring.local()
    sealed = {local.seal(b"x", b"journal")[16:28] for _ in range(10_000)}
    assert len(sealed) == 10_000
    kept = Keyring([OLD]).local().seal(CANARY.encode(), b"journal")
    assert Keyring([NEW, OLD]).local().open(kept, b"journal") == CANARY.encode()
    for keys, context in (([NEW], b"journal"), ([OLD], b"another purpose")):
        with pytest.raises(SealError):
            Keyring(keys).local().open(kept, context)
    with pytest.raises(SealError):
        Keyring([OLD]).local().open(bytes([kept[0] ^ 1]) + kept[1:], b"journal")


def test_each_file_has_a_key_of_its_own_and_no_key_serves_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Keyring([OLD])
    one, other = ring.local(), ring.local()
    assert one.seal(b"x", b"journal")[:16] == one.seal(b"x", b"journal")[:16] != other.seal(b"x", b"journal")[:16]
    monkeypatch.setattr(keyring, "LOCAL_USES", 3)
    sealed = [one.seal(b"x", b"journal") for _ in range(7)]
    assert len({each[:16] for each in sealed}) == 3
    assert {other.open(each, b"journal") for each in sealed} == {b"x"}
