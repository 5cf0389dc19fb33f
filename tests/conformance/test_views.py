"""Views for people: the same rows on every store."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlane.model.queue import Queue
from tests.conformance.backends import SqliteBackend
from tests.conformance.harness import Harness
from tests.conformance.test_retention import run

MINUTE = 60

COLUMNS = {
    "messages": "tenant queue partition position id transaction_id trace_id type headers created_at data",
    "queue_depths": (
        "tenant queue group partitions messages lag lagging_partitions leased oldest_at dead_letters max_size "
        "remaining_capacity"
    ),
    "active_leases": (
        "tenant queue group partition lease position messages leased_at expires_at seconds_held seconds_remaining"
    ),
    "partition_utilisation": "tenant queue partition messages share bytes lag leases created_at last_push_at",
    "stuck_lanes": "tenant queue group partition reason since lag position attempts error",
    "retention_history": "tenant queue partition at rule messages unread",
}


READ = """
import json, sqlite3, sys
file, chosen, view, queue = sys.argv[1:]
connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)
rows = connection.execute(f"select {chosen} from {view} where queue = ?", [queue]).fetchall()
sys.stdout.write(json.dumps(rows))
"""


def read_by_others(file: Path, *arguments: str) -> list[list[Any]]:
    """Read a view in another process with the system's SQLite library, which may be older than the broker's."""
    ran = subprocess.run([sys.executable, "-c", READ, str(file), *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    rows: list[list[Any]] = json.loads(ran.stdout)
    return rows


async def look(harness: Harness, queue: Queue, view: str, columns: str) -> list[tuple[Any, ...]]:
    # Qualified with the view's name, because SQLite takes an unknown quoted name for a string.
    chosen = ", ".join(f'{view}."{column}"' for column in columns.split())
    if isinstance(harness.backend, SqliteBackend):
        rows = await asyncio.to_thread(read_by_others, harness.backend.path, chosen, view, queue.name)
    else:
        rows = await harness.backend.sql(f"SELECT {chosen} FROM fairlane.{view} WHERE queue = $1", queue.name)
    return sorted((tuple(row) for row in rows), key=str)


@pytest.mark.parametrize("view", COLUMNS)
async def test_every_view_has_its_columns(harness: Harness, view: str) -> None:
    queue = await harness.queue()
    await harness.push(queue, [1])
    rows = await look(harness, queue, view, COLUMNS[view])
    assert all(row[:2] == ("default", queue.name) for row in rows)
    assert len(rows) == (view in ("messages", "queue_depths", "partition_utilisation"))


async def test_messages_are_those_that_are_retained(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [{"to": "a"}, 2, 3], ids=["a", "b", "c"])
    await harness.push(queue, ["other"], partition="p")
    partition = await harness.partition(queue)
    assert await harness.store.browse.delete(partition.id, 1)
    rows = await look(harness, queue, "messages", "partition position transaction_id")
    assert rows == [("Default", 0, "a"), ("Default", 2, "c"), ("p", 0, rows[2][2])]
    [data] = await harness.backend.sql(
        "SELECT data FROM fairlane.messages WHERE queue = $1 AND transaction_id = 'a'", queue.name
    )
    assert data[0].replace(" ", "") == '{"to":"a"}'


async def test_a_nul_in_a_message_is_shown_as_a_mark_and_hides_no_other(harness: Harness) -> None:
    queue = await harness.queue()
    payloads = ["a\0b\0\0", {"\0": 1}, "\\u0000", "\\\0", "plain"]
    await harness.push(queue, payloads)
    rows = await harness.backend.sql(
        "SELECT data FROM fairlane.messages WHERE queue = $1 ORDER BY position", queue.name
    )
    shown = [msgspec.json.decode(row[0]) for row in rows]
    marked = ["a\ufffdb\ufffd\ufffd", {"\ufffd": 1}, "\\u0000", "\\\ufffd", "plain"]
    assert shown in (payloads, marked), "a store that can hold it shows it as it is"


async def test_queue_depths_count_what_each_group_has_before_it(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    await harness.push(queue, [1, 2, 3])
    await harness.push(queue, [4], partition="p")
    columns = "group partitions messages lag lagging_partitions leased dead_letters"
    assert await look(harness, queue, "queue_depths", columns) == [(None, 2, 4, 4, 0, 0, 0)], "nobody reads yet"
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    partition = await harness.partition(queue)
    await harness.nack(await harness.pop(queue, one, batch=1, partition=partition.id))
    await harness.pop(queue, one, batch=1, partition=partition.id)
    await harness.drain(queue, two)
    assert await look(harness, queue, "queue_depths", columns) == [("one", 2, 4, 3, 2, 1, 1), ("two", 2, 4, 0, 0, 0, 0)]
    [(_, oldest), (_, none)] = await look(harness, queue, "queue_depths", "group oldest_at")
    assert oldest is not None
    assert none is None


async def test_queue_depths_tell_the_room_that_is_left(harness: Harness) -> None:
    queue, free = await harness.queue(max_size=5), await harness.queue()
    group = await harness.group(queue, "g")
    await harness.push(queue, [1, 2, 3])
    await harness.push(free, [1])
    columns = "max_size remaining_capacity"
    assert await look(harness, queue, "queue_depths", columns) == [(5, 2)]
    await harness.ack(await harness.pop(queue, group, batch=2), 2)
    assert await look(harness, queue, "queue_depths", columns) == [(5, 4)]
    assert await look(harness, free, "queue_depths", columns) == [(None, None)]


async def test_active_leases_tell_how_long_they_are_held_and_last(harness: Harness) -> None:
    queue, unordered = await harness.queue(), await harness.queue(ordering="unordered")
    harness.clock.advance(-2 * MINUTE)
    for one in (queue, unordered):
        await harness.push(one, [1])
    await harness.pop(queue, await harness.group(queue, "g"), lease_seconds=60 * MINUTE)
    await harness.pop(unordered, await harness.group(unordered, "g"), lease_seconds=60 * MINUTE)
    [(held, remaining)] = await look(harness, queue, "active_leases", "seconds_held seconds_remaining")
    assert 2 * MINUTE <= held < 10 * MINUTE
    assert float(held) + float(remaining) == pytest.approx(60 * MINUTE, abs=0.01)
    [(held, remaining)] = await look(harness, unordered, "active_leases", "seconds_held seconds_remaining")
    assert held is None, "only its end is stored"
    assert 50 * MINUTE < remaining <= 58 * MINUTE


async def test_queue_depths_of_an_unordered_queue_count_what_is_out_and_what_comes_again(harness: Harness) -> None:
    queue = await harness.queue(ordering="unordered", retry_limit=5)
    await harness.push(queue, [1, 2, 3, 4])
    group = await harness.group(queue, "g")
    await harness.pop(queue, group, batch=3)
    columns = "group messages lag leased"
    assert await look(harness, queue, "queue_depths", columns) == [("g", 4, 4, 3)]
    [(messages, position)] = await look(harness, queue, "active_leases", "messages position")
    assert (messages, position) == (3, 0)


async def test_active_leases_are_those_that_did_not_run_out(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [1, 2, 3])
    await harness.push(queue, [4], partition="p")
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    taken = await harness.pop(queue, one, batch=3, partition=(await harness.partition(queue)).id)
    await harness.ack(taken, 1)
    harness.clock.advance(-10 * MINUTE)
    await harness.pop(queue, two, batch=3, lease_seconds=MINUTE)
    rows = await look(harness, queue, "active_leases", "group partition position messages")
    assert rows == [("one", "Default", 1, 2)]
    [(lease, leased_at, expires_at)] = await look(harness, queue, "active_leases", "lease leased_at expires_at")
    assert str(lease).replace("-", "") == taken.token.hex
    assert leased_at < expires_at


async def test_partition_utilisation_tells_the_share_of_each(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue, "g")
    await harness.push(queue, [1, 2, 3], partition="a")
    await harness.push(queue, [4], partition="b")
    await harness.partition(queue, "c")
    await harness.pop(queue, group, batch=1, partition=(await harness.partition(queue, "a")).id)
    rows = await look(harness, queue, "partition_utilisation", "partition messages share lag leases")
    assert rows == [("a", 3, 0.75, 3, 1), ("b", 1, 0.25, 1, 0), ("c", 0, 0.0, 0, 0)]
    sizes = await look(harness, queue, "partition_utilisation", "partition bytes last_push_at")
    assert [(size > 0, pushed_at is not None) for _, size, pushed_at in sizes] == [(True, True)] * 2 + [(False, False)]


async def test_stuck_lanes_say_why_they_do_not_move(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=5, retry_delay_ms=60_000)
    group = await harness.group(queue, "g")
    names = ("fresh", "read", "retrying")
    for name in names:
        await harness.push(queue, [1, 2], partition=name)
    await harness.nack(await harness.pop(queue, group, partition=(await harness.partition(queue, "retrying")).id))
    await harness.pop(queue, group, partition=(await harness.partition(queue, "read")).id)
    harness.clock.advance(-10 * MINUTE)
    await harness.push(queue, [1], partition="unread")
    await harness.push(queue, [1], partition="expired")
    lost = await harness.partition(queue, "expired")
    await harness.pop(queue, group, partition=lost.id, lease_seconds=MINUTE)
    rows = await look(harness, queue, "stuck_lanes", "group partition reason lag position attempts error")
    assert rows == [
        ("g", "expired", "lease expired", 1, 0, None, None),
        ("g", "retrying", "retrying", 2, 0, 1, "boom"),
        ("g", "unread", "unread", 1, 0, None, None),
    ]
    assert all(since is not None for (since,) in await look(harness, queue, "stuck_lanes", "since"))


async def test_stuck_lanes_show_what_somebody_stopped(harness: Harness) -> None:
    blocked = await harness.queue(retry_limit=0, on_exhausted="block")
    parked = await harness.queue(retry_limit=0, on_exhausted="park")
    paused = await harness.queue()
    for queue in (blocked, parked, paused):
        await harness.push(queue, [1, 2])
        await harness.group(queue)
    for queue in (blocked, parked):
        await harness.nack(await harness.pop(queue))
    await harness.store.pauses.pause(paused.id)
    for queue, reason in ((blocked, "blocked"), (parked, "parked"), (paused, "paused")):
        assert await look(harness, queue, "stuck_lanes", "reason lag") == [(reason, 2)]


async def test_retention_history_tells_partitions_apart(harness: Harness) -> None:
    queue = await harness.queue(
        retry_limit=0, retention_enabled=True, retention_seconds=60, dead_letter_retention_seconds=60
    )
    await harness.push(queue, [1, 2, 3], partition="a")
    await harness.push(queue, [4], partition="b")
    await harness.nack(await harness.pop(queue, partition=(await harness.partition(queue, "a")).id))
    harness.clock.advance(61)
    await run(harness)
    rows = await look(harness, queue, "retention_history", "partition rule messages unread")
    assert rows == [("a", "dead_letters", 1, 1), ("a", "retention", 3, 2), ("b", "retention", 1, 1)]
    harness.clock.advance(8 * 86_400)
    await run(harness)
    assert await look(harness, queue, "retention_history", "partition rule messages unread") == []
