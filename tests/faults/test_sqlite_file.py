"""An SQLite file deleted or replaced under a running broker: nothing is acked that the next start would not find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import Unavailable


def files(path: Path) -> list[Path]:
    return [path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")]


def delete(path: Path) -> None:
    for file in files(path):
        file.unlink()


def delete_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def restore_copy(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    delete(path)
    copy.rename(path)


def move(path: Path) -> None:
    for file in files(path):
        file.rename(file.with_name(f"moved-{file.name}"))


@pytest.mark.parametrize("harm", [delete, delete_log, restore_copy, move])
async def test_a_message_pushed_after_the_file_is_gone_waits_in_the_journal(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "queue.db"
    async with Broker.open(f"sqlite:///{path}", journal=str(tmp_path / "journal")) as broker:
        await broker.push("q", "before")
        harm(path)
        assert (await broker.push("q", "after")).status == "buffered"
        assert not await broker.status.healthy()
        assert "restart the broker" in (broker.status.journal().why_not or "")  # type: ignore[union-attr]
        with pytest.raises(Unavailable):
            await broker.pop("q")
    async with Broker.open(f"sqlite:///{path}", journal=str(tmp_path / "journal")) as broker:
        seen = []
        while "after" not in seen:
            seen += [delivery.data for delivery in await broker.pop("q", wait=10, auto_ack=True)]


async def test_a_pop_does_not_read_a_file_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    async with Broker.open(f"sqlite:///{path}") as broker:
        await broker.push("q", "before")
        delete(path)
        with pytest.raises(Unavailable):
            await broker.push("q", "after")
        with pytest.raises(Unavailable):
            await broker.pop("q")
