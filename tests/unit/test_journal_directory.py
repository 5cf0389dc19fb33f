"""A journal shared by several processes: one order, lanes visible to all, and one process that drains it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from fairlane.errors import JournalFull
from fairlane.model.ids import uuid7
from fairlane.store.contract.journal import Backlog, Entry, NewEntry
from fairlane.store.journal.journal import Journal

A = Backlog("push", "t", "q", "a")
B = Backlog("push", "t", "q", "b")


class Process:
    """The journal as one process opens it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.abandoned: set[Backlog] = set()

    async def append(self, backlog: Backlog, *bodies: bytes) -> None:
        entries = [NewEntry(backlog, 1, body, UUID(uuid7())) for body in bodies]
        await self.journal.append(entries, self.abandoned)

    async def bodies(self) -> list[bytes]:
        return [entry.body for entry in await self.entries()]

    async def entries(self) -> list[Entry]:
        return await self.journal.read([A, B], entries_max=100, bytes_max=10**9)

    async def drain(self) -> None:
        await self.journal.remove(await self.entries())


@contextlib.asynccontextmanager
async def processes(
    directory: Path, count: int, bytes_max: int = 10**9, store: str = "a"
) -> AsyncIterator[list[Process]]:
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            journal = await Journal.open(str(directory), bytes_max=bytes_max, store=store)
            stack.push_async_callback(journal.close)
            found.append(Process(journal))
        yield found


async def test_what_any_process_appends_is_in_one_order_and_its_lane_known_to_all_when_it_is_answered(
    tmp_path: Path,
) -> None:
    async with processes(tmp_path, 3) as (first, second, third):
        everybody = (first, second, third)
        versions = [one.journal.version() for one in everybody]
        await second.append(A, b"1")
        assert all(one.journal.version() != version for one, version in zip(everybody, versions, strict=True))
        assert [one.journal.holds([A, B]) for one in everybody] == [{A}] * 3
        await third.append(A, b"2")
        await first.append(A, b"3")
        await asyncio.gather(second.append(A, b"4"), second.append(A, b"5"), first.append(B, b"other"))
        assert [one.journal.holds([A, B]) for one in everybody] == [{A, B}] * 3
        for one in everybody:
            assert [body for body in await one.bodies() if body != b"other"] == [b"1", b"2", b"3", b"4", b"5"]
        await first.drain()
        assert not any(one.journal.holds([A, B]) for one in everybody)
        versions = [one.journal.version() for one in everybody]
        assert versions == [one.journal.version() for one in everybody], "nobody changed anything"
        await third.append(A, b"6")
        assert second.journal.holds([A, B]) == {A}


async def test_who_joins_late_sees_what_waits(tmp_path: Path) -> None:
    async with processes(tmp_path, 1) as [first]:
        await first.append(A, b"1")
        async with processes(tmp_path, 1) as [late]:
            assert late.journal.holds([A, B]) == {A}
            assert late.journal.state() == first.journal.state()


async def test_what_is_for_another_store_goes_to_another_journal(tmp_path: Path) -> None:
    async with processes(tmp_path, 1) as [first], processes(tmp_path, 2, store="b") as (other, another):
        await other.append(A, b"1")
        assert not first.journal.holds([A])
        assert await first.bodies() == []
        assert await another.bodies() == [b"1"]
        await first.journal.close()
        async with processes(tmp_path, 1, store="b") as [late]:
            assert await late.bodies() == [b"1"], "where processes of its store are, not in the file that is free"


async def test_one_drains_and_another_when_it_goes(tmp_path: Path) -> None:
    async with processes(tmp_path, 3) as (first, second, third):
        assert [one.journal.drains() for one in (first, second, third)] == [True, False, False]
        await first.journal.close()
        assert [one.journal.drains() for one in (third, second)] == [True, False]


async def test_a_full_journal_is_full_for_every_process(tmp_path: Path) -> None:
    async with processes(tmp_path, 2, bytes_max=1_000) as (first, other):
        await other.append(A, bytes(700))
        for one in (first, other):
            with pytest.raises(JournalFull):
                await one.append(B, bytes(700))
        assert not first.journal.holds([B])
        assert other.journal.free_bytes() == first.journal.free_bytes() == 200


async def test_who_drains_knows_the_lanes_in_which_a_process_has_work_that_may_yet_be_applied(tmp_path: Path) -> None:
    async with processes(tmp_path, 3) as (drains, other, third):
        other.abandoned = {A}
        await other.append(A, b"1")
        await third.append(B, b"2")
        assert drains.journal.unsettled() == {A}, "from the moment on when the entry could be read"
        assert other.journal.unsettled() == set(), "of others"
        await other.journal.publish_abandoned(set())
        assert drains.journal.unsettled() == set()
        await third.journal.publish_abandoned({B})
        assert drains.journal.unsettled() == {B}
        await third.journal.close()
        assert drains.journal.unsettled() == set(), "it is gone"


async def test_an_operation_is_found_from_any_process_until_it_is_applied(tmp_path: Path) -> None:
    ids = sorted(UUID(uuid7()) for _ in range(3))
    async with processes(tmp_path, 2) as (drains, other):
        await other.journal.append([NewEntry(A, 1, b"body", id) for id in ids])
        for one in (drains, other):
            found = await one.journal.find(ids[1])
            assert found is not None
            assert (found.id, found.body, found.error) == (ids[1], b"body", None)
            assert await one.journal.find(UUID(uuid7())) is None
            listed = await one.journal.page(ids[0], failed=None, limit=5)
            assert [(entry.id, entry.body) for entry in listed] == [(ids[1], b""), (ids[2], b"")]
        assert found is not None
        await drains.journal.fail(found, "no")
        for failed, expected in ((True, [ids[1]]), (False, [ids[0], ids[2]])):
            listed = await other.journal.page(UUID(int=0), failed=failed, limit=5)
            assert [entry.id for entry in listed] == expected
        await drains.drain()
        assert [await other.journal.find(id) is not None for id in ids] == [False, True, False]


async def test_a_failed_entry_is_seen_tried_again_and_discarded_from_any_process(tmp_path: Path) -> None:
    async with processes(tmp_path, 2) as (drains, other):
        await other.append(A, b"1")
        [entry] = await drains.entries()
        await drains.journal.fail(entry, "no")
        assert not other.journal.holds([A])
        [failed] = await other.journal.page(UUID(int=0), failed=True, limit=5)
        assert await other.journal.retry(failed.id)
        assert not await drains.journal.retry(failed.id)
        assert drains.journal.holds([A]) == {A}
        [entry] = await drains.entries()
        assert entry.body == b"1"
        assert not await other.journal.discard(entry.id), "it waits"
        await drains.journal.fail(entry, "no")
        assert await other.journal.discard(entry.id)
        assert drains.journal.state().bytes == 0


WRITER = """
import asyncio, sys
from uuid import UUID
from fairlane.model.ids import uuid7
from fairlane.store.contract.journal import Backlog, NewEntry
from fairlane.store.journal.journal import Journal

async def main():
    journal = await Journal.open(sys.argv[1], bytes_max=10**9, store="a")
    for number in range(10**9):
        body = f"{sys.argv[2]} {number}".encode()
        await journal.append([NewEntry(Backlog("push", "t", "q", sys.argv[2]), 1, body, UUID(uuid7()))], {A})
        print(number, flush=True)

A = Backlog("push", "t", "q", "a")
asyncio.run(main())
"""


async def test_processes_that_are_killed_while_they_append_leave_all_they_were_told_of(tmp_path: Path) -> None:
    async with processes(tmp_path, 1) as [mine]:
        writers = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", WRITER, str(tmp_path), name, stdout=subprocess.PIPE
            )
            for name in ("a", "b")
        ]
        said = [b"", b""]
        while min(text.count(b"\n") for text in said) < 50:
            for number, writer in enumerate(writers):
                assert writer.stdout is not None
                said[number] += await writer.stdout.read(4096)
        assert mine.journal.unsettled() == {A}
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
        for number, writer in enumerate(writers):
            assert writer.stdout is not None
            said[number] += await writer.stdout.read()
            await writer.wait()
        assert mine.journal.unsettled() == set(), "they are gone"
        for backlog, text in zip((A, B), said, strict=True):
            accepted = text.count(b"\n")
            found = await mine.journal.read([backlog], entries_max=10**6, bytes_max=10**9)
            assert [entry.body.decode() for entry in found] == [
                f"{backlog.partition} {number}" for number in range(len(found))
            ]
            assert len(found) - accepted in (0, 1)
