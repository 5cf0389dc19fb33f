"""`fairlane export` and `fairlane import`: queues continue in another store exactly where they were."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fairlane import Broker, PushItem
from fairlane.store.exchange.snapshot import QUEUE_TABLES, STORE_TABLES
from fairlane.store.sqlite.exchange import scratch
from tests.conftest import FreshDatabase
from tests.moving.stores import GROUPS, KEY, drain, fill, later, seen
from tests.moving.test_backup import command
from tests.postgres import PostgresServer

LEFT_OUT = {
    *("migrations", "meta", "catalogue_changes", "leadership", "flags", "workers", "sessions", "data_keys", "purges"),
    *("operations", "operation_backlogs", "expiries", "retention_rules", "retention_minutes", "retention_hours"),
    *("traces", "trace_names", "stream_queries", "stream_state", "sources", "shadow_records", "shadow_copies"),
    *("audit_entries", "audit_head", "history_minutes", "history_hours", "starts", "fan_ins", "fan_in_parts"),
    *("snoozes", "progress"),
}
"""Tables about a store, its brokers or its past, and those that docs/moving-data.md names."""
Store = Callable[[str], Awaitable[str]]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, fresh_database: FreshDatabase) -> Store:
    """Return a function that names an empty store of a kind."""
    numbers = count()

    async def make(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/{next(numbers)}.db"
        server: PostgresServer = request.getfixturevalue("postgres18")
        return await fresh_database(server)

    request.getfixturevalue("postgres18")
    return make


async def exported(source: str, tmp_path: Path, *more: str) -> str:
    file = f"{tmp_path}/export.ndjson"
    await command("export", *more, "--store", source, "--output", file, "--overwrite")
    return file


def lines(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def write(file: str, content: bytes) -> str:
    Path(file).write_bytes(content)
    return file


def without_keys(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "keys"}


@pytest.mark.parametrize("kinds", [("sqlite", "postgres18"), ("postgres18", "sqlite"), ("sqlite", "sqlite")])
async def test_everything_continues_in_the_other_store_where_it_was(
    kinds: tuple[str, str], store: Store, tmp_path: Path
) -> None:
    source, target = await store(kinds[0]), await store(kinds[1])
    async with Broker.open(source) as broker:
        await fill(broker, sealed=False)
        before = without_keys(await seen(broker))
    file = await exported(source, tmp_path)
    async with Broker.open(target) as broker:
        await broker.push("other", "was here before")
    first = await command("import", file, "--store", target)
    assert "key" in first, "what is left out is named"
    again = await command("import", file, "--store", target)
    assert "Imported 0 queues" in again
    async with Broker.open(target) as broker:
        after = without_keys(await seen(broker))
        assert {name: value for name, value in after.items() if not name.startswith("other")} == before
        assert (await broker.push("orders", 0, partition="a", transaction_id="given")).status == "duplicate"
        assert (await later(broker)).status == "duplicate"
        await broker.push("orders", "next", partition="a")
        for group in GROUPS:
            left = [message.data for message in await drain(broker, "orders", group, "a")]
            assert left == [*range(3, 10), {"text": "ü\n"}, 12, "next"]
        left = [message.data for message in await drain(broker, "jobs", "__QUEUE_MODE__", "p")]
        assert sorted(left) == [0, 1, 2, *range(4, 10)], "of the unordered queue, what was not finished"
        assert await broker.scheduled.cancel("orders", "later", partition="a")
        assert [message.data for message in await drain(broker, "other", "g", "Default")] == ["was here before"]


async def test_brokers_on_postgresql_serve_a_queue_that_is_imported_while_they_run(
    store: Store, tmp_path: Path
) -> None:
    source, target = await store("sqlite"), await store("postgres18")
    async with Broker.open(source) as broker:
        for number in range(3):
            await broker.push("orders", number, partition="p")
        await broker.ack(await broker.pop("orders", partition="p"))
    file = await exported(source, tmp_path)
    async with Broker.open(target) as broker:
        await broker.push("other", 1)
        assert not await broker.queues.exists("orders")
        await command("import", file, "--store", target)
        await broker.push("orders", 3, partition="p")
        assert [message.data for message in await drain(broker, "orders", "__QUEUE_MODE__", "p")] == [1, 2, 3]


async def test_an_export_has_every_field_of_a_message_and_no_secret(store: Store, tmp_path: Path) -> None:
    source = await store("sqlite")
    async with Broker.open(source) as broker:
        await fill(broker, sealed=False)
        new = await broker.keys.create("worker", scopes=["pop"])
    file = await exported(source, tmp_path)
    found = lines(file)
    assert (found[0]["kind"], found[0]["format"]) == ("fairlane", 1)
    [line] = [one for one in found if one["kind"] == "message" and one["message"]["transactionId"] == "given"]
    assert (line["queue"], line["partition"], line["position"]) == ("orders", "a", 10)
    assert (line["message"]["type"], line["message"]["headers"]) == ("order", {"k": "v"})
    assert line["message"]["data"] == {"text": "ü\n"}
    keys = [one for one in found if one["kind"] == "apiKey"]
    assert {one["name"] for one in keys} == {"producer", "worker"}
    assert all("hash" not in one for one in keys)
    assert new.key not in json.dumps(found)
    assert lines(await exported(source, tmp_path, "jobs"))[1]["queue"] == "jobs"


async def test_a_deleted_message_is_not_in_an_export_and_stays_deleted(store: Store, tmp_path: Path) -> None:
    source, target = await store("sqlite"), await store("postgres18")
    async with Broker.open(source) as broker:
        for number in range(3):
            await broker.push("q", f"payload {number}", partition="p", transaction_id=f"id-{number}")
        [page] = await broker.queues.counted("q")
        await broker.messages.delete(str(page.id), "id-1")
    file = await exported(source, tmp_path)
    assert "payload 1" not in json.dumps(lines(file))
    await command("import", file, "--store", target)
    async with Broker.open(target) as broker:
        assert [message.data for message in await drain(broker, "q", "g", "p")] == ["payload 0", "payload 2"]


async def test_twenty_thousand_messages_pass_through_a_compressed_export(store: Store, tmp_path: Path) -> None:
    source, target, done = await store("sqlite"), await store("postgres18"), {}
    async with Broker.open(source) as broker:
        for lane in range(20):
            for first in range(0, 1000, 250):
                numbers = range(first, first + 250)
                items = [PushItem(queue="q", partition=f"p{lane}", payload=b"%d" % n) for n in numbers]
                await broker.push_many(items)
            batch = await broker.pop("q", partition=f"p{lane}", batch=37 * lane + 1)
            await broker.ack(batch)
            done[lane] = len(batch)
    file = await exported(source, tmp_path, "--compress")
    assert "Imported 1 queue" in await command("import", file, "--store", target)
    async with Broker.open(target) as broker:
        for lane in range(20):
            left = [message.data for message in await drain(broker, "q", "__QUEUE_MODE__", f"p{lane}")]
            assert left == [*range(done[lane], 1000)]


@pytest.mark.parametrize("kind", ["sqlite", "postgres18"])
@pytest.mark.parametrize("commits", range(5))
async def test_an_import_that_is_killed_has_whole_queues_and_continues(
    kind: str, commits: int, store: Store, tmp_path: Path
) -> None:
    source, target = await store("sqlite"), await store(kind)
    async with Broker.open(source) as broker:
        await fill(broker, sealed=False)
        before = without_keys(await seen(broker))
    file = await exported(source, tmp_path)
    dying = f"""
import asyncio, os, signal, sys
from fairlane.store.exchange import importing, stores
from fairlane.store.postgres.exchange import PostgresRows
from fairlane.store.sqlite.exchange import SqliteRows
left = {commits}
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def dying_after(commit):
    async def count(self):
        global left
        left or die()
        left -= 1
        await commit(self)
    return count
for kind in PostgresRows, SqliteRows:
    kind.commit = dying_after(kind.commit)
importing.ImportWriter._add_others = die
asyncio.run(stores.import_lines(sys.argv[1], open(sys.argv[2], "rb"), lambda *_: None))
"""
    line = [sys.executable, "-c", dying, target, file]
    assert (await asyncio.to_thread(subprocess.run, line)).returncode == -9
    async with Broker.open(target) as broker:
        whole = {queue.name for queue in await broker.queues.all()}
        assert len(whole) + len(await broker.of("north").queues.all()) == commits
        partly = await seen(broker)
        assert {name: partly[name] for name in whole} == {name: before[name] for name in whole}
    await command("import", file, "--store", target)
    async with Broker.open(target) as broker:
        assert without_keys(await seen(broker)) == before


async def test_a_damaged_or_incomplete_export_is_refused(store: Store, tmp_path: Path) -> None:
    source, target = await store("sqlite"), await store("sqlite")
    async with Broker.open(source) as broker:
        await broker.push("q", 1)
        await broker.push("q", 2)
    whole = (await asyncio.to_thread(Path(await exported(source, tmp_path)).read_bytes)).splitlines(keepends=True)
    broken = {
        "incomplete": whole[:-1],
        "cut off in line 2": [*whole[:1], whole[1][:-20]],
        "lacks lines": [*whole[:-2], whole[-1]],
        "is not a line": [*whole[:2], b"{\n", *whole[2:]],
        "not an export": [b'{"kind":"other"}\n'],
        "does not fit": [*whole[:1], b'{"kind":"wrong"}\n', *whole[1:]],
        "fit its kind 'spec'": [*whole[:1], b'{"kind":"spec","app":"A"}\n', *whole[1:]],
        "cannot be read": [gzip.compress(b"".join(whole))[:-20]],
    }
    for sentence, content in broken.items():
        file = await asyncio.to_thread(write, f"{tmp_path}/broken", b"".join(content))
        assert sentence in await command("import", file, "--store", target, code=2)


async def test_other_messages_encryption_and_a_running_broker_are_refused(store: Store, tmp_path: Path) -> None:
    source, target = await store("sqlite"), await store("sqlite")
    async with Broker.open(source) as broker:
        await broker.push("q", 1, transaction_id="one")
    file = await exported(source, tmp_path)
    async with Broker.open(target, encryption_key=KEY) as broker:
        await broker.push("q", 1, transaction_id="other")
        assert "stop the broker" in await command("import", file, "--store", target, code=75)
        assert "exists" in await command("export", "--store", source, "--output", file, code=2)
        await broker.queues.configure("secrets", encryption_enabled=True)
    assert "other messages" in await command("import", file, "--store", target, code=2)
    assert "encrypted" in await command("export", "secrets", "--store", target, code=2)
    assert "does not exist" in await command("export", "nothing", "--store", target, code=2)


def test_every_table_is_exported_or_left_out_on_purpose() -> None:
    with scratch() as rows:
        assert rows.tables() - {*QUEUE_TABLES, *STORE_TABLES} == LEFT_OUT
