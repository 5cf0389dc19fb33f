"""The journal's file: order, durability, its owner, what it adopts, and what happens when it is full."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from fairlane.errors import JournalFull
from fairlane.model.ids import uuid7
from fairlane.model.queue import Queue, QueueOptions
from fairlane.store.contract.journal import Backlog, Entry, NewEntry
from fairlane.store.journal.journal import Journal

A = Backlog("push", "t", "q", "a")
B = Backlog("push", "t", "q", "b")
ACK = Backlog("ack", "t", "g", "0-1")


def entry_of(backlog: Backlog, messages: int, body: bytes) -> NewEntry:
    return NewEntry(backlog, messages, body, UUID(uuid7()))


@contextlib.asynccontextmanager
async def opened(directory: Path, bytes_max: int = 10**9, store: str = "a") -> AsyncIterator[Journal]:
    journal = await Journal.open(str(directory), bytes_max=bytes_max, store=store)
    try:
        yield journal
    finally:
        await journal.close()


async def read(journal: Journal, kind: str = "push", entries_max: int = 100) -> list[Entry]:
    backlogs = [backlog for backlog in await journal.backlogs() if backlog.kind == kind]
    return await journal.read(backlogs, entries_max=entries_max * max(1, len(backlogs)), bytes_max=10**9)


async def test_entries_come_back_in_the_order_they_were_accepted(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([entry_of(A, 1, b"1"), entry_of(B, 2, b"2")])
        await journal.append([entry_of(ACK, 1, b"ack")])
        await journal.append([entry_of(A, 1, b"3")])
        found = await read(journal)
        assert [(entry.backlog, entry.body) for entry in found] == [(A, b"1"), (B, b"2"), (A, b"3")]
        assert [entry.body for entry in await read(journal, "ack")] == [b"ack"]
        assert await journal.backlogs() == {A: 2, B: 1, ACK: 1}
        assert (journal.state().entries, journal.state().messages) == (4, 5)
        await journal.remove(found[:2])
        assert [entry.body for entry in await read(journal)] == [b"3"]
        assert (journal.state().entries, journal.state().messages) == (2, 2)


async def test_a_read_is_bounded_by_bytes_but_never_empty_while_something_waits(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([entry_of(A, 1, bytes(100)) for _ in range(5)])
        assert len(await journal.read([A], entries_max=10, bytes_max=250)) == 2
        assert len(await journal.read([A], entries_max=10, bytes_max=1)) == 1
        assert len(await journal.read([A], entries_max=3, bytes_max=10**6)) == 3


async def test_each_lane_has_an_entry_read_before_any_has_two(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([entry_of(A, 1, b"%d" % number) for number in range(50)])
        await journal.append([entry_of(B, 1, b"b"), entry_of(ACK, 1, b"ack"), entry_of(B, 1, b"bb")])
        few = await journal.read([A, B], entries_max=2, bytes_max=10**9)
        assert [entry.body for entry in few] == [b"0", b"b"]
        assert [entry.body for entry in await journal.read([A, B], entries_max=6, bytes_max=3)] == [b"0", b"1", b"b"]
        assert [entry.body for entry in await journal.read([B], entries_max=6, bytes_max=10**9)] == [b"b", b"bb"]
        await journal.remove(few)
        [first, *_] = await journal.read([A], entries_max=1, bytes_max=10**9)
        assert first.body == b"1"
        assert await journal.read([Backlog("push", "t", "q", "none")], entries_max=1, bytes_max=10**9) == []


async def test_a_full_journal_refuses_whole_and_takes_again_what_fits_later(tmp_path: Path) -> None:
    async with opened(tmp_path, bytes_max=1_000) as journal:
        await journal.append([entry_of(A, 1, bytes(700))])
        with pytest.raises(JournalFull, match="of 1000 bytes") as refusal:
            await journal.append([entry_of(A, 1, b"x"), entry_of(A, 1, bytes(200))])
        assert refusal.value.retry_after > 0
        [only] = await read(journal)
        await journal.remove([only])
        await journal.append([entry_of(A, 1, bytes(700))])
        assert journal.state().entries == 1


async def test_a_failed_entry_stays_and_can_be_tried_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([entry_of(A, 3, b"1"), entry_of(A, 1, b"2")])
        first, second = await read(journal)
        await journal.fail(first, "no such thing")
        assert await read(journal) == [second]
        [listed] = await journal.page(UUID(int=0), failed=True, limit=10)
        failed = await journal.find(listed.id)
        assert failed is not None
        assert (failed.body, failed.error) == (b"1", "no such thing")
        assert (journal.state().failed, journal.state().entries, journal.state().messages) == (1, 1, 1)
        assert await journal.backlogs() == {A: 1}
        assert await journal.retry(failed.id)
        assert not await journal.retry(failed.id)
        assert [entry.body for entry in await read(journal)] == [b"2", b"1"]
        assert (journal.state().failed, journal.state().entries, journal.state().messages) == (0, 2, 4)


async def test_the_next_owner_finds_everything(tmp_path: Path) -> None:
    queue = Queue(
        id=1, tenant="t", name="q", namespace="", task="", options=QueueOptions(ordering="fifo"), created_at=1
    )
    async with opened(tmp_path) as journal:
        await journal.append([entry_of(A, 1, b"1")])
        await journal.append([entry_of(A, 1, b"2")])
        await journal.fail((await read(journal))[0], "bad")
        await journal.save(queues=[queue])
        state = journal.state()
    async with opened(tmp_path) as journal:
        assert journal.state() == state
        assert [entry.body for entry in await read(journal)] == [b"2"]
        assert await journal.queues() == [queue]


async def test_each_store_has_a_file_of_its_own_and_the_next_broker_adopts_what_others_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        async with opened(tmp_path, store="b") as second:
            await second.append([entry_of(B, 1, b"left"), entry_of(B, 1, b"behind")])
            async with opened(tmp_path, store="c") as third:
                assert await read(third) == [], "the broker of these entries lives"
        await first.append([entry_of(A, 1, b"mine")])
    async with opened(tmp_path, store="d") as journal:
        assert [entry.body for entry in await read(journal)] == [b"mine", b"left", b"behind"]
        assert await journal.backlogs() == {A: 1, B: 2}
        async with opened(tmp_path) as another:
            assert await read(another) == []


async def test_a_broker_that_lives_adopts_what_another_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as living:
        await living.append([entry_of(A, 1, b"mine")])
        async with opened(tmp_path, store="b") as other:
            await other.append([entry_of(B, 2, str(number).encode()) for number in range(250)])
            await other.append([entry_of(A, 1, b"refused")])
            await other.fail((await read(other, entries_max=1000))[250], "no")
            await living.adopt()
            assert await living.backlogs() == {A: 1}, "its process lives"
        for _ in range(2):
            await living.adopt()
            assert await living.backlogs() == {A: 1, B: 250}
        found = await read(living, entries_max=1000)
        assert [entry.body for entry in found] == [b"mine", *(str(number).encode() for number in range(250))]
        state = living.state()
        assert (state.entries, state.messages, state.failed) == (251, 501, 1)
    async with opened(tmp_path) as next_one:
        assert next_one.state() == state


WRITER = """
import asyncio, sys
from uuid import UUID
from fairlane.model.ids import uuid7
from fairlane.store.contract.journal import Backlog, NewEntry
from fairlane.store.journal.journal import Journal

async def main():
    journal = await Journal.open(sys.argv[1], bytes_max=10**9, store="a")
    for number in range(10**9):
        await journal.append([NewEntry(Backlog("push", "t", "q", "a"), 1, str(number).encode(), UUID(uuid7()))])
        print(number, flush=True)

asyncio.run(main())
"""


async def test_what_was_accepted_survives_kill_9(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(tmp_path), stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = b""
    while said.count(b"\n") < 50:
        said += await process.stdout.read(4096)
    process.send_signal(signal.SIGKILL)
    said += await process.stdout.read()
    await process.wait()
    accepted = [int(line) for line in said.decode().split("\n")[:-1]]
    async with opened(tmp_path) as journal:
        found = await read(journal, entries_max=10**6)
        assert [int(entry.body) for entry in found][: len(accepted)] == accepted
        assert len(found) - len(accepted) in (0, 1)


async def test_the_log_is_written_back_beside_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.store.journal.journal.CHECKPOINT_PAGES", 20)
    bodies = [bytes([number]) * 5_000 for number in range(100)]
    async with opened(tmp_path) as journal:
        for body in bodies:
            await journal.append([entry_of(A, 1, body)])
        async with asyncio.timeout(10):
            while (tmp_path / "journal-0.db").stat().st_size < 20 * 4096:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert [entry.body for entry in await read(journal)] == bodies
    async with opened(tmp_path) as journal:
        assert [entry.body for entry in await read(journal)] == bodies


async def test_a_disk_that_is_full_refuses_and_harms_nothing(tmp_path: Path) -> None:
    """SQLite's own error for a file that cannot grow."""
    async with opened(tmp_path) as journal:
        await journal.append([entry_of(A, 1, b"before")])
        pages = await journal._writer.run(lambda db, _: db.pragma("page_count"))
        await journal._writer.run(lambda db, _: db.pragma("max_page_count", pages + 2))
        with pytest.raises(JournalFull, match="cannot grow"):
            await journal.append([entry_of(A, 1, bytes(1_000_000))])
        await journal.append([entry_of(A, 1, b"small")])
        assert journal.state().entries == 2
        await journal._writer.run(lambda db, _: db.pragma("max_page_count", 10**6))
        await journal.append([entry_of(A, 1, bytes(1_000_000))])
    async with opened(tmp_path) as journal:
        assert [len(entry.body) for entry in await read(journal)] == [6, 5, 1_000_000]
