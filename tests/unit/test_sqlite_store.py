"""The SQLite file: its permissions, settings and schema, and its content after a restart."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
from pathlib import Path

import apsw
import pytest

from fairlane.errors import ShuttingDown, StoreCorrupt, StoreUnavailable, StoreUnsafe
from fairlane.model.group import Subscription
from fairlane.model.ids import id_key, uuid7, uuid7_ms
from fairlane.model.message import PushItem
from fairlane.model.queue import Partition, Queue
from fairlane.model.segment import messages, pack
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.values import Slice, Stored
from fairlane.store.sqlite.connection import check_durable
from fairlane.store.sqlite.migrate import migrate
from fairlane.store.sqlite.queues import PURGE_ROWS
from fairlane.store.sqlite.store import SqliteStore
from tests.clock import ManualClock


def slice_of(queue: Queue, partition: Partition, *payloads: bytes) -> Slice:
    ids = [uuid7() for _ in payloads]
    return Slice(
        partition=partition.id,
        queue_id=queue.id,
        options=queue.options,
        fragments=[pack(id, id, PushItem(queue=queue.name, payload=p)) for id, p in zip(ids, payloads, strict=True)],
        transaction_ids=ids,
        keys=[id_key(id) for id in ids],
        id_times=[uuid7_ms(id) or 0 for id in ids],
        given=[True] * len(ids),
    )


async def stored(store: SqliteStore, *payloads: bytes) -> tuple[Queue, Partition]:
    """Push these messages to a queue with one partition."""
    queue = await store.queues.ensure("default", "mail")
    [partition] = await store.queues.ensure_partitions(queue.id, ["Default"])
    [result] = await store.messages.push([slice_of(queue, partition, *payloads)])
    assert isinstance(result, Stored)
    return queue, partition


def execute(path: Path, sql: str) -> list[tuple[object, ...]]:
    db = apsw.Connection(str(path))
    try:
        return list(db.execute(sql).fetchall())
    finally:
        db.close()


def flip_a_bit(path: Path, of: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(of) + len(of) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


async def test_a_second_opener_is_told_who_has_the_file(path: Path) -> None:
    async with await SqliteStore.open(str(path)):
        with pytest.raises(StoreUnavailable, match=re.escape(str(path)) + ".*another broker.*PostgreSQL"):
            await SqliteStore.open(str(path))
    async with await SqliteStore.open(str(path)):
        pass


async def test_a_link_to_the_file_does_not_get_around_the_lock(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    async with await SqliteStore.open(str(path)):
        with pytest.raises(StoreUnavailable, match="another broker"):
            await SqliteStore.open(str(link))


def open_and_report(path: str, answers: multiprocessing.Queue[str]) -> None:
    async def run() -> str:
        try:
            await (await SqliteStore.open(path)).close()
        except StoreUnavailable as error:
            return str(error)
        return "opened"

    answers.put(asyncio.run(run()))


async def test_a_second_process_is_refused(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    async with await SqliteStore.open(str(path)):
        process = context.Process(target=open_and_report, args=(str(path), answers))
        process.start()
        answer = await asyncio.to_thread(answers.get)
        await asyncio.to_thread(process.join)
    assert "another broker" in answer
    answers.close()


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("This is no database. " * 1000)
    return path


async def test_the_lock_is_free_after_a_failed_start(text_file: Path) -> None:
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="not an SQLite database"):
            await SqliteStore.open(str(text_file))


async def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="missing"):
        await SqliteStore.open(str(tmp_path / "missing" / "queue.db"))


def test_settings_that_lose_commits_are_refused(path: Path) -> None:
    db = apsw.Connection(str(path))
    with pytest.raises(StoreUnsafe, match="journal_mode"):
        check_durable(db)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "normal")
    with pytest.raises(StoreUnsafe, match="synchronous"):
        check_durable(db)
    db.pragma("synchronous", "full")
    check_durable(db)
    db.close()


async def test_a_newer_schema_is_refused(path: Path) -> None:
    await (await SqliteStore.open(str(path))).close()
    execute(path, "insert into migrations values (9999, 'later', null, '', 9999)")
    with pytest.raises(StoreUnsafe, match="9999"):
        await SqliteStore.open(str(path))


async def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    execute(path, "create table notes (text)")
    with pytest.raises(StoreUnsafe, match="another program"):
        await SqliteStore.open(str(path))
    assert execute(path, "select name from sqlite_schema") == [("notes",)]


def test_migrating_twice_changes_nothing(path: Path) -> None:
    db = apsw.Connection(str(path))
    migrate(db)
    before = db.execute("select type, name, sql from sqlite_schema order by name").fetchall()
    migrate(db)
    assert db.execute("select type, name, sql from sqlite_schema order by name").fetchall() == before
    db.close()


async def test_what_was_stored_is_there_after_a_reopening(path: Path) -> None:
    async with await SqliteStore.open(str(path)) as store:
        _, partition = await stored(store, b"1", b"[2]")
    assert not path.with_name("queue.db-wal").exists()
    async with await SqliteStore.open(str(path)) as store:
        segments = await store.messages.read(partition.id, 0, 10)
        assert [bytes(message.raw) for message in messages(segments, 0, 10)] == [b"1", b"[2]"]


async def test_time_goes_on_from_the_last_one_stored(path: Path) -> None:
    ahead = ManualClock(wall_clock() + 3_600_000_000)
    await (await SqliteStore.open(str(path), clock=ahead)).close()
    async with await SqliteStore.open(str(path)) as store:
        assert await store.now() >= ahead.at


async def test_time_is_kept_without_a_clean_close(path: Path, tmp_path: Path) -> None:
    ahead = ManualClock(wall_clock() + 3_600_000_000)
    copy = tmp_path / "copy.db"
    async with await SqliteStore.open(str(path), clock=ahead) as store:
        await stored(store, b"1")
        for suffix in ("", "-wal"):
            copy.with_name(f"copy.db{suffix}").write_bytes(path.with_name(f"queue.db{suffix}").read_bytes())
    async with await SqliteStore.open(str(copy)) as store:
        assert await store.now() >= ahead.at


@pytest.mark.parametrize("verb", ["read", "write"])
async def test_calls_after_the_close_are_refused(path: Path, verb: str) -> None:
    store = await SqliteStore.open(str(path))
    await asyncio.gather(store.close(), store.close())
    await store.close()
    with pytest.raises(ShuttingDown):
        await (store.queues.all("default") if verb == "read" else store.queues.ensure("default", "q"))


async def test_a_store_in_memory_has_every_family() -> None:
    async with await SqliteStore.open(":memory:") as store, await SqliteStore.open(":memory:") as other:
        queue, partition = await stored(store, b"1")
        group = await store.groups.subscribe(queue.id, "g", Subscription())
        assert [lane.head for lane in await store.groups.lanes(group.id)] == [1]
        assert len(await store.messages.read(partition.id, 0, 1)) == 1
        assert await other.queues.all("default") == []


async def test_a_flipped_bit_in_a_body_is_noticed(path: Path) -> None:
    async with await SqliteStore.open(str(path)) as store:
        _, partition = await stored(store, b'"payload"')
    flip_a_bit(path, of=b'"payload"')
    assert execute(path, "pragma integrity_check") == [("ok",)]
    async with await SqliteStore.open(str(path)) as store:
        [segment] = await store.messages.read(partition.id, 0, 1)
        with pytest.raises(StoreCorrupt, match="checksum"):
            segment.fragments(0, 1)


async def test_people_read_messages_with_plain_sql(path: Path) -> None:
    async with await SqliteStore.open(str(path), clock=ManualClock(1_000_000_000_000_042)) as store:
        await stored(store, b'{"to":"a"}', b"[1,2]", b"null")
    assert execute(path, "select queue, partition, position, type, created_at, data from messages") == [
        ("mail", "Default", 0, None, "2001-09-09T01:46:40.000042Z", '{"to":"a"}'),
        ("mail", "Default", 1, None, "2001-09-09T01:46:40.000042Z", "[1,2]"),
        ("mail", "Default", 2, None, "2001-09-09T01:46:40.000042Z", "null"),
    ]


TABLES = ("segments", "cursors", "partitions", "groups", "queues", "purges")


async def test_a_start_removes_the_rows_of_queues_deleted_before(path: Path) -> None:
    async with await SqliteStore.open(str(path)) as store:
        queue, _ = await stored(store, b"1")
        await store.groups.subscribe(queue.id, "g", Subscription())
        await store.queues.ensure_partitions(queue.id, [f"p{n}" for n in range(PURGE_ROWS)])
    execute(path, "insert into purges select id from queues; delete from queues; delete from groups")
    async with await SqliteStore.open(str(path)) as store:
        await store._purging
    for table in TABLES:
        assert execute(path, f"select count(*) from {table}") == [(0,)], table
