"""`fairlane migrate`: a SQLite store continues on PostgreSQL exactly where it was."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane import Broker, PushItem
from fairlane.store.migration import REBUILT, columns_of
from fairlane.store.postgres.receive import receiving
from fairlane.store.sqlite.tables import open_tables
from tests.conftest import FreshDatabase
from tests.moving.stores import GROUPS, KEY, drain, fill, later, seen
from tests.moving.test_backup import command
from tests.postgres import PostgresServer

OWN = {"migrations", "meta", "catalogue_changes", "leadership", *REBUILT}
"""Tables that do not move."""
RENAMED = {
    ("partitions", "newest_id_at"),
    ("partitions", "keyed_until"),
    ("partitions", "doubted_until"),
}
"""Columns with another name or unit on PostgreSQL."""


@pytest.fixture
async def target(postgres18: PostgresServer, fresh_database: FreshDatabase) -> str:
    return await fresh_database(postgres18)


def words(source: str, target: str, tmp_path: Path) -> list[str]:
    return ["migrate", "--from", source, "--to", target, "--data-dir", f"{tmp_path}/data"]


async def test_everything_continues_on_postgresql_where_it_was(tmp_path: Path, target: str) -> None:
    source = f"sqlite:///{tmp_path}/queue.db"
    async with Broker.open(source, encryption_key=KEY) as broker:
        await fill(broker)
        before = await seen(broker)
        [head] = (await broker.messages.page("orders", transaction_id="given")).messages
    assert "compared" in await command(*words(source, target, tmp_path))
    async with Broker.open(target, encryption_key=KEY) as broker:
        assert await seen(broker) == before
        [moved] = (await broker.messages.page("orders", transaction_id="given")).messages
        assert moved == head, "with its id and its times"
        assert (await broker.push("orders", 0, partition="a", transaction_id="given")).status == "duplicate"
        assert (await later(broker)).status == "duplicate"
        assert (await broker.push("orders", "next", partition="a")).status != "duplicate"
        for group in GROUPS:
            left = [message.data for message in await drain(broker, "orders", group, "a")]
            assert left == [*range(3, 10), {"text": "ü\n"}, 12, "next"]
        assert [message.data for message in await drain(broker, "secrets", "__QUEUE_MODE__", "s")] == [
            {"card": 1},
            {"card": 2},
        ]
        jobs = [message.data for message in await drain(broker, "jobs", "__QUEUE_MODE__", "p")]
        assert sorted(jobs) == [0, 1, 2, *range(4, 10)], "of the unordered queue, what was not finished"
        assert await broker.scheduled.cancel("orders", "later", partition="a")
        created = await broker.queues.configure("new")
        assert created.id > max(queue.id for queue in await broker.queues.all() if queue.name != "new")


async def test_twenty_thousand_messages_keep_their_order_and_groups_their_place(tmp_path: Path, target: str) -> None:
    source, done = f"sqlite:///{tmp_path}/queue.db", {}
    async with Broker.open(source) as broker:
        for lane in range(20):
            for first in range(0, 1000, 250):
                items = [
                    PushItem(queue="q", partition=f"p{lane}", payload=b"%d" % n) for n in range(first, first + 250)
                ]
                await broker.push_many(items)
            batch = await broker.pop("q", partition=f"p{lane}", batch=37 * lane + 1)
            await broker.ack(batch)
            done[lane] = len(batch)
    assert "1 queue, 20 partitions, 20000 messages, 20 lanes" in await command(*words(source, target, tmp_path))
    async with Broker.open(target) as broker:
        for lane in range(20):
            left = [message.data for message in await drain(broker, "q", "__QUEUE_MODE__", f"p{lane}")]
            assert left == [*range(done[lane], 1000)]


@pytest.mark.parametrize("step", ["copy segments", "copy partitions", "verify partition"])
async def test_a_migration_that_is_killed_leaves_the_target_empty_and_can_be_repeated(
    step: str, tmp_path: Path, target: str
) -> None:
    source = f"{tmp_path}/queue.db"
    async with Broker.open(f"sqlite:///{source}") as broker:
        for number in range(3):
            await broker.push("q", number, partition=f"p{number}")
    dying = (
        "import asyncio, os, signal, sys; from fairlane.store.migration import migrate\n"
        "die = lambda step, done, total: step == sys.argv[1] and os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(migrate(sys.argv[2], sys.argv[3], die))"
    )
    line = [sys.executable, "-c", dying, step, source, target]
    assert (await asyncio.to_thread(subprocess.run, line)).returncode == -9
    await command(*words(f"sqlite:///{source}", target, tmp_path))
    async with Broker.open(target) as broker:
        assert [len(await drain(broker, "q", "g", f"p{number}")) for number in range(3)] == [1, 1, 1]


async def test_a_copy_that_differs_is_refused_and_stores_nothing(tmp_path: Path, target: str) -> None:
    """The copy is damaged on its way, as a defect of the converter would."""
    source = f"{tmp_path}/queue.db"
    async with Broker.open(f"sqlite:///{source}") as broker:
        await broker.push("q", 1)
    damage = (
        "import asyncio, sys; from fairlane.store import migration\n"
        "migration.CONVERSIONS['bytea'] = lambda value: value[:-1] + b'7'\n"
        "asyncio.run(migration.migrate(sys.argv[1], sys.argv[2], lambda *_: None))"
    )
    line = [sys.executable, "-c", damage, source, target]
    done = await asyncio.to_thread(subprocess.run, line, capture_output=True, text=True)
    assert "nothing was stored" in done.stderr
    async with Broker.open(target) as broker:
        assert await broker.queues.all() == []


async def test_a_target_with_rows_and_a_source_in_use_are_refused(tmp_path: Path, target: str) -> None:
    source = f"sqlite:///{tmp_path}/queue.db"
    async with Broker.open(source) as broker:
        await broker.push("q", 1)
        assert "stop the broker" in await command(*words(source, target, tmp_path), code=75)
    async with Broker.open(target) as broker:
        assert "brokers use the target" in await command(*words(source, target, tmp_path), code=75)
        await broker.push("other", 1)
    assert "not empty" in await command(*words(source, target, tmp_path), code=2)
    assert "no store" in await command(*words("sqlite:///nothing.db", target, tmp_path), code=2)
    assert "moves a store from" in await command(*words(target, source, tmp_path), code=2)


async def test_accepted_pushes_that_are_only_in_the_journal_are_not_left_behind(tmp_path: Path, target: str) -> None:
    source = f"sqlite:///{tmp_path}/queue.db"
    async with Broker.open(source, journal=f"{tmp_path}/data/journal") as broker:
        await broker.pauses.pause_pushes(True)
        await broker.push("q", 1)
    assert "journal" in await command(*words(source, target, tmp_path), code=75)


async def test_every_table_and_column_moves_or_is_left_on_purpose(tmp_path: Path, target: str) -> None:
    async with Broker.open(f"sqlite:///{tmp_path}/queue.db"):
        pass
    async with receiving(target) as receiver:
        with open_tables(f"{tmp_path}/queue.db") as tables:
            assert tables.names() - set(receiver.tables) - OWN == set()
            for table in tables.names() - OWN:
                wanted, existing = receiver.tables[table], tables.columns(table)
                copied = {column.name for column in columns_of(table, wanted, existing)}
                assert {(table, name) for name in existing - copied} <= RENAMED
                missing = [column.name for column in wanted if column.name not in copied and not column.optional]
                assert missing == [], table
