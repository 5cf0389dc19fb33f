"""The operator's keys."""

from __future__ import annotations

import base64
import os

import pytest

from fairlane.errors import InvalidRequest, SealError
from fairlane.store.keyring import Keyring

CANARY = "canary"
OLD, NEW = os.urandom(32), os.urandom(32)


@pytest.mark.parametrize("text", ["x", "00" * 32, "ab" * 16, base64.b64encode(b"short").decode()])
def test_a_key_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Keyring.parse(text)


def test_nonces_do_not_repeat_and_what_is_sealed_locally_survives_a_rotation() -> None:
    ring = Keyring.parse(f"{OLD.hex()}, {base64.b64encode(NEW).decode()}")
    sealed = {ring.seal_locally(b"x", b"journal")[:12] for _ in range(10_000)}
    assert len(sealed) == 10_000
    kept = Keyring([OLD]).seal_locally(CANARY.encode(), b"journal")
    assert Keyring([NEW, OLD]).open_locally(kept, b"journal") == CANARY.encode()
    with pytest.raises(SealError):
        Keyring([NEW]).open_locally(kept, b"journal")
    with pytest.raises(SealError):
        Keyring([OLD]).open_locally(kept, b"another purpose")
