"""Files of a broker that hold messages, keys or passwords are unreadable for other users of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.broker.broker import Broker
from fairlane.config import Settings, encryption_key
from fairlane.errors import InvalidRequest


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The usual umask of shells."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def _modes(directory: Path) -> dict[str, str]:
    return {path.name: oct(path.stat().st_mode & 0o777) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("open_umask")
async def test_files_of_the_store_and_of_the_journal_are_for_their_owner_alone(tmp_path: Path) -> None:
    async with Broker.open(f"sqlite:///{tmp_path}/queue.db", journal=str(tmp_path / "journal")) as broker:
        await broker.push("orders", {"total": 1})
        modes = _modes(tmp_path)
        assert {"queue.db", "queue.db-wal", "queue.db-shm", "journal-0.db", "journal-0.db-wal"} <= modes.keys()
        assert set(modes.values()) == {"0o600"}, modes


async def test_a_store_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "queue.db"
    path.touch()
    path.chmod(0o644)
    async with Broker.open(f"sqlite:///{path}"):
        assert f"chmod 600 {path}" in caplog.text


def test_a_key_file_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "key"
    path.write_text("00" * 32)
    path.chmod(0o600)
    encryption_key(Settings(encryption_key_file=str(path)))
    assert not caplog.text
    path.chmod(0o666)
    encryption_key(Settings(encryption_key_file=str(path)))
    assert f"chmod 600 {path}" in caplog.text


async def test_a_password_is_not_shown_when_the_url_names_no_store() -> None:
    with pytest.raises(InvalidRequest) as refused:
        async with Broker.open("postgresq://me:S3CRET@db/queue"):
            pass
    assert "S3CRET" not in str(refused.value)
    assert "postgresq://" in str(refused.value)
