"""The writer thread: waiting jobs share a commit, a failed job fails alone, and a lost commit raises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from fairlane.errors import OutcomeUnknown, ShuttingDown, StoreFull, StoreUnavailable
from fairlane.runtime.clock import wall_clock
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.error_mapping import translate


class Refused(Exception):
    pass


class Notes:
    """A table that is written through the writer."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.commits = 0

    async def make(self) -> None:
        def work(db: apsw.Connection, now: int) -> None:
            db.execute("create table notes (text)")
            db.set_commit_hook(self._count)

        await self.database.write(work)

    def _count(self) -> bool:
        self.commits += 1
        return False

    async def add(self, text: str, *, error: Exception | None = None) -> str:
        def work(db: apsw.Connection, now: int) -> str:
            db.execute("insert into notes values (?)", (text,))
            if error is not None:
                raise error
            return text.upper()

        return await self.database.write(work)

    async def all(self) -> list[Any]:
        return await self.database.read(
            lambda db, now: [text for (text,) in db.execute("select text from notes order by rowid").fetchall()]
        )

    async def busy(self, entered: asyncio.Event, leave: threading.Event) -> None:
        """Block the writer until released, so that calls meanwhile share the next commit."""
        loop = asyncio.get_running_loop()

        def work(db: apsw.Connection, now: int) -> None:
            loop.call_soon_threadsafe(entered.set)
            leave.wait(60)

        await self.database.write(work)

    async def together(self, *calls: Any) -> list[Any]:
        """Make calls that share one commit. Returns their answers."""
        entered, leave = asyncio.Event(), threading.Event()
        busy = asyncio.create_task(self.busy(entered, leave))
        await entered.wait()
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        leave.set()
        await busy
        return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def notes(tmp_path: Path) -> AsyncIterator[Notes]:
    database = await Database.open(str(tmp_path / "queue.db"), clock=wall_clock)
    notes = Notes(database)
    await notes.make()
    yield notes
    await database.close()


class FailingDisk(apsw.VFS):
    """A file system on which the log cannot be synced while `broken` is set."""

    def __init__(self) -> None:
        self.broken = False
        super().__init__("failing-disk", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> FailingFile:
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        if self._is_log and self._disk.broken:
            raise apsw.IOError("the disk is gone")
        super().xSync(flags)


@pytest.fixture
def disk() -> Iterator[FailingDisk]:
    disk = FailingDisk()
    yield disk
    disk.unregister()


async def test_what_waits_is_committed_together(notes: Notes) -> None:
    before = notes.commits
    answers = await notes.together(*(notes.add(f"n{n}") for n in range(20)))
    assert answers == [f"N{n}" for n in range(20)]
    assert notes.commits - before <= 2, "one for the turn before, one for all that waited"


async def test_a_call_that_fails_leaves_nothing_and_harms_no_other(notes: Notes) -> None:
    answers = await notes.together(notes.add("a"), notes.add("b", error=Refused()), notes.add("c"))
    assert answers[0] == "A"
    assert isinstance(answers[1], Refused)
    assert answers[2] == "C"
    assert await notes.all() == ["a", "c"]


async def test_work_that_raises_stop_iteration_fails_like_any_other(notes: Notes) -> None:
    """A future cannot hold StopIteration, so its caller would wait forever."""
    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await notes.add("a", error=StopIteration())
        with pytest.raises(RuntimeError, match="StopIteration"):
            await notes.database.read(lambda db, now: next(iter(())))
        failed, done = await notes.together(notes.add("b", error=StopIteration()), notes.add("c"))
    assert isinstance(failed, RuntimeError)
    assert done == "C"
    assert await notes.all() == ["c"]


async def test_a_driver_error_does_not_leave(notes: Notes) -> None:
    wrong = notes.database.write(lambda db, now: db.execute("select * from nowhere"))
    answers = await notes.together(notes.add("a"), wrong)
    assert answers[0] == "A"
    assert isinstance(answers[1], StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        await notes.database.read(lambda db, now: db.execute("select * from nowhere"))


async def test_a_reader_cannot_write(notes: Notes) -> None:
    with pytest.raises(StoreUnavailable):
        await notes.database.read(lambda db, now: db.execute("insert into notes values ('x')"))
    assert await notes.all() == []


async def test_a_cancelled_caller_does_not_stop_the_writer(notes: Notes) -> None:
    entered, leave = asyncio.Event(), threading.Event()
    busy = asyncio.create_task(notes.busy(entered, leave))
    await entered.wait()
    waiting = asyncio.create_task(notes.add("a"))
    await asyncio.sleep(0)
    waiting.cancel()
    leave.set()
    await busy
    assert await notes.add("b") == "B"
    assert await notes.all() == ["a", "b"]


async def test_a_close_finishes_what_was_handed_over(notes: Notes, tmp_path: Path) -> None:
    entered, leave = asyncio.Event(), threading.Event()
    busy = asyncio.create_task(notes.busy(entered, leave))
    await entered.wait()
    waiting = asyncio.create_task(notes.add("a"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(notes.database.close())
    await asyncio.sleep(0)
    leave.set()
    assert await waiting == "A"
    await asyncio.gather(busy, closing)
    with pytest.raises(ShuttingDown):
        await notes.add("b")


async def test_a_full_disk_refuses_and_then_goes_on(notes: Notes) -> None:
    pages = await notes.database.write(lambda db, now: db.pragma("page_count"))
    await notes.database.write(lambda db, now: db.pragma("max_page_count", pages))
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await notes.add("x" * 1_000_000)
    await notes.database.write(lambda db, now: db.pragma("max_page_count", 1_000_000))
    assert await notes.add("y") == "Y"
    assert await notes.all() == ["y"]


async def test_another_program_that_holds_the_file_makes_it_unavailable(notes: Notes, tmp_path: Path) -> None:
    await notes.database.write(lambda db, now: db.set_busy_timeout(10))
    other = apsw.Connection(str(tmp_path / "queue.db"))
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match="another program"):
        await notes.add("a")
    other.execute("rollback")
    other.close()
    assert await notes.add("b") == "B"


async def test_after_a_failed_sync_nothing_is_answered_as_done(disk: FailingDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "queue.db")
    notes = Notes(await Database.open(path, clock=wall_clock))
    await notes.make()
    await notes.add("safe")
    disk.broken = True
    answers = await notes.together(notes.add("a"), notes.add("b"))
    assert [type(answer) for answer in answers] == [OutcomeUnknown, OutcomeUnknown]
    disk.broken = False  # the next sync would succeed, and prove nothing
    with pytest.raises(StoreUnavailable, match="disk failed"):
        await notes.add("c")
    with pytest.raises(StoreUnavailable, match="disk failed"):
        await notes.all()
    await notes.database.close()

    again = Notes(await Database.open(path, clock=wall_clock))
    kept = await again.all()
    assert kept in (["safe"], ["safe", "a", "b"]), "what was answered is there; what was unknown, wholly or not at all"
    await again.database.close()


def test_a_commit_without_room_for_shared_memory_may_have_been_stored() -> None:
    """SQLite extends the shared memory after it has written and synced the commit, which a restart would then find."""
    error = apsw.IOError("disk I/O error")
    vars(error)["extendedresult"] = apsw.SQLITE_IOERR_SHMSIZE
    assert type(translate(error)) is StoreFull
    assert type(translate(error, commit=True)) is OutcomeUnknown
