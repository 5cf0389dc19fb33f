"""A SQLite file deleted or replaced while a broker runs: nothing is acked that the next start would not find."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import StoreFull, Unavailable


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


class Disk(apsw.VFS):
    """The files of this process. Those under `full` cannot grow."""

    def __init__(self, full: Path) -> None:
        self.full: Path | None = full
        self.base = apsw.vfs_names()[0]
        super().__init__("disk", self.base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return File(self, name, flags)


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self.disk = disk
        self.path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "")
        super().__init__(disk.base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.disk.full is not None and self.path.is_relative_to(self.disk.full):
            raise apsw.FullError
        super().xWrite(data, offset)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    full = tmp_path / "full"
    full.mkdir()
    disk = Disk(full)
    yield disk
    disk.unregister()


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


async def test_a_broker_with_a_journal_starts_while_the_disk_of_its_file_is_full(tmp_path: Path, disk: Disk) -> None:
    async with Broker.open(f"sqlite:///{tmp_path}/full/queue.db", journal=str(tmp_path / "journal")) as broker:
        assert (await broker.push("q", 1)).status == "buffered"
        assert "the disk is full" in (broker.status.journal().why_not or "")  # type: ignore[union-attr]
        disk.full = None
        assert [delivery.data for delivery in await broker.pop("q", wait=30)] == [1]


async def test_a_broker_without_a_journal_does_not_start_while_the_disk_is_full(tmp_path: Path, disk: Disk) -> None:
    with pytest.raises(StoreFull, match="the disk is full"):
        async with Broker.open(f"sqlite:///{tmp_path}/full/queue.db"):
            pass
