"""One journal for several processes: one order, lanes that all of them hold, and an heir when the owner goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from fairlane.broker.journal_backlogs import JournalBacklogs
from fairlane.errors import JournalFull, OutcomeUnknown
from fairlane.model.ids import uuid7
from fairlane.store.contract.journal import Backlog, Entry, NewEntry
from fairlane.store.sqlite.journal_directory import DirectoryJournal
from tests.until import until

A = Backlog("push", "t", "q", "a")
B = Backlog("push", "t", "q", "b")


class Process:
    """What a process has of a journal."""

    def __init__(self, journal: DirectoryJournal) -> None:
        self.journal = journal
        self.backlogs = JournalBacklogs(journal)
        self.abandoned: set[Backlog] = set()
        journal.attach(self.backlogs, lambda: self.abandoned)

    async def append(self, backlog: Backlog, *bodies: bytes) -> None:
        failure = await self.backlogs.append([NewEntry(backlog, 1, body) for body in bodies])
        if failure is not None:
            raise failure

    async def bodies(self) -> list[bytes]:
        return [entry.body for entry in await self.entries()]

    async def entries(self) -> list[Entry]:
        return await self.journal.read([A, B], entries_max=100, bytes_max=10**9)

    async def drain(self) -> None:
        entries = await self.entries()
        await self.journal.remove(entries)
        self.backlogs.let_go(entry.backlog for entry in entries)


@contextlib.asynccontextmanager
async def processes(
    directory: Path, count: int, bytes_max: int = 10**9, store: str = "a"
) -> AsyncIterator[list[Process]]:
    """The first of them owns the journal."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            journal = await DirectoryJournal.open(str(directory), bytes_max=bytes_max, store=store)
            stack.push_async_callback(journal.close)
            found.append(Process(journal))
            found[-1].backlogs.hold(await journal.backlogs())
        yield found


async def test_what_any_process_appends_is_in_one_order_and_its_lane_known_to_all_when_it_is_answered(
    tmp_path: Path,
) -> None:
    async with processes(tmp_path, 3) as (owner, first, second):
        await first.append(A, b"1")
        assert all(A in one.backlogs for one in (owner, first, second))
        await second.append(A, b"2")
        await owner.append(A, b"3")
        await asyncio.gather(first.append(A, b"4"), first.append(A, b"5"), owner.append(B, b"other"))
        assert all(B in one.backlogs for one in (owner, first, second))
        assert [body for body in await owner.bodies() if body != b"other"] == [b"1", b"2", b"3", b"4", b"5"]
        assert await first.bodies() == await second.bodies() == [], "the owner drains"
        await owner.drain()
        await until(lambda: not (first.backlogs or second.backlogs))
        await second.append(A, b"6")
        assert A in first.backlogs
        await owner.drain()
        await until(lambda: not (first.backlogs or second.backlogs))
        assert not owner.backlogs


async def test_who_joins_late_holds_what_waits(tmp_path: Path) -> None:
    async with processes(tmp_path, 1) as [owner]:
        await owner.append(A, b"1")
        async with processes(tmp_path, 1) as [late]:
            assert A in late.backlogs
            assert late.journal.state() == owner.journal.state()
            await owner.drain()
            await until(lambda: not late.backlogs)


async def test_what_is_for_another_store_goes_to_another_journal(tmp_path: Path) -> None:
    async with processes(tmp_path, 1) as [owner], processes(tmp_path, 1, store="b") as [other]:
        await other.append(A, b"1")
        assert A not in owner.backlogs
        assert await owner.bodies() == []
        assert await other.bodies() == [b"1"]


async def test_when_the_owner_goes_another_goes_on_and_no_lane_is_let_go_meanwhile(tmp_path: Path) -> None:
    async with processes(tmp_path, 3) as (owner, first, second):
        await first.append(A, b"1")
        closing = asyncio.create_task(owner.journal.close())
        appending = asyncio.create_task(second.append(A, b"2"))
        while not closing.done():
            assert A in first.backlogs
            assert A in second.backlogs
            await asyncio.sleep(0.001)
        [lost] = await asyncio.gather(appending, return_exceptions=True)
        assert lost is None or isinstance(lost, OutcomeUnknown)
        await second.append(A, b"3")
        heirs = [one for one in (first, second) if await one.bodies()]
        assert len(heirs) == 1
        found = await heirs[0].bodies()
        assert (found[0], found[-1]) == (b"1", b"3")
        await heirs[0].drain()
        await until(lambda: not (first.backlogs or second.backlogs))


async def test_a_full_journal_is_told_to_whoever_hands_over(tmp_path: Path) -> None:
    async with processes(tmp_path, 2, bytes_max=1_000) as (owner, other):
        await other.append(A, bytes(700))
        with pytest.raises(JournalFull):
            await other.append(B, bytes(700))
        assert B not in other.backlogs
        assert B not in owner.backlogs
        assert other.journal.room() == owner.journal.room()


async def test_the_owner_knows_the_lanes_in_which_a_process_has_work_that_may_yet_be_applied(tmp_path: Path) -> None:
    async with processes(tmp_path, 3) as (owner, other, third):
        other.abandoned = {A}
        await other.append(A, b"1")
        await third.append(B, b"2")
        assert owner.journal.unsettled() == {A}, "from the moment on when the entry could be read"
        other.abandoned = set()
        await other.journal.tell()
        assert owner.journal.unsettled() == set()


async def test_an_operation_is_found_from_any_process_until_it_is_applied(tmp_path: Path) -> None:
    ids = sorted(UUID(uuid7()) for _ in range(3))
    async with processes(tmp_path, 2) as (owner, other):
        await other.backlogs.append([NewEntry(A, 1, b"body", id) for id in ids])
        for one in (owner, other):
            found = await one.journal.find(ids[1])
            assert found is not None
            assert (found.id, found.body, found.error) == (ids[1], b"body", None)
            assert await one.journal.find(UUID(uuid7())) is None
            listed = await one.journal.page(ids[0], failed=None, limit=5)
            assert [(entry.id, entry.body) for entry in listed] == [(ids[1], b""), (ids[2], b"")]
        await owner.journal.fail(found, "no")
        for failed, expected in ((True, [ids[1]]), (False, [ids[0], ids[2]])):
            listed = await other.journal.page(UUID(int=0), failed=failed, limit=5)
            assert [entry.id for entry in listed] == expected
        await owner.journal.remove(await owner.entries())
        assert [await other.journal.find(id) is not None for id in ids] == [False, True, False]


async def test_a_failed_entry_is_seen_and_tried_again_from_any_process(tmp_path: Path) -> None:
    async with processes(tmp_path, 2) as (owner, other):
        await other.append(A, b"1")
        [entry] = await owner.entries()
        await owner.journal.fail(entry, "no")
        owner.backlogs.let_go([A])
        await until(lambda: A not in other.backlogs)
        [failed] = await other.journal.failed(limit=5)
        assert await other.journal.failed_entry(failed.seq) == failed
        other.backlogs.hold({A: 1})
        assert await other.journal.retry(failed)
        assert A in owner.backlogs
        assert await owner.bodies() == [b"1"]
        await owner.drain()
        await until(lambda: A not in other.backlogs)
