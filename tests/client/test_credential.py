"""The credential of a client: where it is read from, and where it is not sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairlane import Client
from fairlane.client import credential
from fairlane.client.credential import Credential
from fairlane.errors import InvalidRequest


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FAIRLANE_KEY", "FAIRLANE_KEY_FILE", "FAIRLANE_INSECURE"):
        monkeypatch.delenv(name, raising=False)


def test_what_is_given_weighs_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Credential().line() == ""
    monkeypatch.setenv("FAIRLANE_KEY", "fl_env")
    assert Credential().line() == "Authorization: Bearer fl_env\r\n"
    assert Credential("fl_given").line() == "Authorization: Bearer fl_given\r\n"


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("fl_one\n")
    monkeypatch.setenv("FAIRLANE_KEY_FILE", str(file))
    monkeypatch.setattr(credential, "RELOAD_SECONDS", 0.0)
    found = Credential()
    assert found.line() == "Authorization: Bearer fl_one\r\n"
    new = tmp_path / "new"
    new.write_text("fl_two\n")
    os.replace(new, file)
    assert found.line() == "Authorization: Bearer fl_two\r\n"
    file.unlink()
    assert found.line() == "Authorization: Bearer fl_two\r\n", "one that is being replaced is there again soon"
    with pytest.raises(InvalidRequest, match="cannot read the key"):
        Credential()


@pytest.mark.parametrize("token", ["", "fl_ä", "a\r\nHost: evil"])
def test_what_is_no_credential_is_refused(token: str) -> None:
    with pytest.raises(InvalidRequest, match="printable ASCII"):
        Credential(token)


@pytest.mark.parametrize(
    ("host", "tls", "allowed"),
    [
        ("127.0.0.1", False, True),
        ("127.0.0.9", False, True),
        ("::1", False, True),
        ("localhost", False, True),
        ("broker.example.com", True, True),
        ("broker.example.com", False, False),
        ("127.evil.example", False, False),
        ("localhost.evil.example", False, False),
        ("10.0.0.1", False, False),
        ("0.0.0.0", False, False),
    ],
)
def test_a_key_goes_unencrypted_to_loopback_alone(host: str, tls: bool, allowed: bool) -> None:
    if allowed:
        Credential("fl_x").check(host, tls=tls)
    else:
        with pytest.raises(InvalidRequest, match="unencrypted"):
            Credential("fl_x").check(host, tls=tls)
    Credential("fl_x", insecure=True).check(host, tls=tls)
    Credential().check(host, tls=tls)


async def test_a_client_refuses_before_it_connects() -> None:
    async with Client("http://10.255.255.1:6632", token="fl_x", attempts=1) as client:
        with pytest.raises(InvalidRequest, match="use https"):
            await client.queues.all()
