"""The tail cache: consumers get bytes from memory that pops soon ask for, and only what the store says exists.

SQLite does not cache what is pushed, because the pages of the file are in the memory of the process anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from fairlane.model.group import Group
from fairlane.model.lease import LeaseId
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.queue import Queue
from fairlane.store import tail_cache
from fairlane.store.contract.values import Duplicates, PopCall, PopClaim
from fairlane.store.keyring import Keyring
from fairlane.store.postgres.connection import Database
from tests.conformance.harness import Harness, Taken
from tests.conformance.test_retention import run

BIG = "x" * 1000
"""Payload that no other value of a row comes near."""


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep following queues for as long as a test may take."""
    monkeypatch.setattr(tail_cache, "_FOLLOWED_SECONDS", 600.0)


@dataclass
class Reads:
    """The calls of a store, and the values in their rows that hold such payloads."""

    calls: int = 0
    bodies: int = 0

    def add(self, row: Any) -> Any:
        self.bodies += sum(isinstance(value, bytes) and BIG[:500].encode() in value for value in row)
        return row


@contextlib.contextmanager
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Count the calls of a PostgreSQL store in this block, and the bodies that they return."""
    counted = Reads()
    with monkeypatch.context() as patched:
        run_one = Database._run

        async def counting(database: Database, *arguments: Any) -> Any:
            counted.calls += 1
            rows = await run_one(database, *arguments)
            for row in rows:
                counted.add(row)
            return rows

        patched.setattr(Database, "_run", counting)
        yield counted


def caches_pushes(harness: Harness) -> bool:
    """Return True for a store that caches messages when they are pushed."""
    return harness.store.kind != "sqlite"


async def followed(harness: Harness, *groups: str, **options: Any) -> tuple[Queue, list[Group]]:
    """Return a queue whose groups have read what there was, as consumers at its end have."""
    queue = await harness.queue(**options)
    made = [await harness.group(queue, name) for name in groups or ("workers",)]
    await harness.push(queue, [BIG])
    for group in made:
        assert await harness.pop(queue, group, auto_ack=True)
    return queue, made


async def test_new_messages_are_never_read_back(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, groups = await followed(harness, "a", "b", "c")
    await harness.push(queue, [f"{n} {BIG}" for n in range(20)])
    with reads(monkeypatch) as counted:
        for group in groups:
            for first in (0, 10):
                taken = await harness.pop(queue, group, batch=10, auto_ack=first == 0)
                assert taken.data == [f"{n} {BIG}" for n in range(first, first + 10)]
        assert counted.bodies == 0
        assert counted.calls <= 6, "a pop asks once"


async def test_a_pop_with_acks_reads_nothing_back(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, [group] = await followed(harness)
    await harness.push(queue, [f"{n} {BIG}" for n in range(30)])
    with reads(monkeypatch) as counted:
        taken = await harness.pop(queue, group, batch=10)
        for first in (10, 20):
            call = PopCall(queue_id=queue.id, group_id=group.id, claims=[PopClaim(harness.token(), 10)])
            ack = msgspec.structs.replace(harness.ordered_ack(taken), done=[(taken.lane.first, taken.lane.upto)])
            [acked], popped = await harness.store.messages.ack_and_pop([ack], call)
            assert (acked.state, acked.after) == ("ok", first + 1)
            taken = Taken(group, call.claims[0].token, popped.lanes[0])
            assert taken.data == [f"{n} {BIG}" for n in range(first, first + 10)]
        assert counted.bodies == 0
        assert counted.calls <= 3, "acks and pop are one call"


async def test_pops_of_several_groups_share_a_call(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"g{n}" for n in range(10)]
    queue, groups = await followed(harness, *names)
    for n in range(3):
        await harness.push(queue, [BIG], partition=f"lane {n}")
    calls = [
        PopCall(queue_id=queue.id, group_id=group.id, claims=[PopClaim(harness.token(), 10) for _ in range(3)])
        for group in groups
    ]
    with reads(monkeypatch) as counted:
        popped = await asyncio.gather(*(harness.store.messages.pop(call) for call in calls))
    assert [[len(lanes) for lanes in result.lanes] for result in popped] == [[1, 1, 1]] * 10
    for group, result in zip(groups, popped, strict=True):
        for claim, [lane] in zip(calls[groups.index(group)].claims, result.lanes, strict=True):
            [leased] = await harness.store.messages.leased(LeaseId(group.id, claim.token))
            assert (leased.partition, leased.first, leased.upto) == (lane.partition, lane.first, lane.upto)
    assert counted.calls <= 3, "those that arrive while some are in flight go together"


async def test_a_segment_that_pops_read_in_part_is_read_once(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [f"{n} {BIG}" for n in range(6)])
    counts = msgspec.structs.replace(harness.store.tail_cache.counts)
    for n in range(6):
        assert (await harness.pop(queue, group, batch=1, auto_ack=True)).data == [f"{n} {BIG}"]
    assert harness.store.tail_cache.counts.hits - counts.hits == 5
    await harness.push(queue, ["later"])
    assert (await harness.pop(queue, group)).data == ["later"]


async def test_a_segment_that_several_groups_read_is_read_once(harness: Harness) -> None:
    queue, groups = await followed(harness, "a", "b", "c")
    await harness.push(queue, [BIG] * 3)
    hits = harness.store.tail_cache.counts.hits
    for group in groups:
        assert (await harness.pop(queue, group, auto_ack=True)).data == [BIG] * 3
    assert harness.store.tail_cache.counts.hits - hits >= len(groups) - 1


@pytest.mark.parametrize("what", ["clear", "delete a message"])
async def test_what_was_deleted_after_a_part_was_read_is_never_delivered(harness: Harness, what: str) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    stored = await harness.push(queue, ["read", "old", "older"])
    partition = (await harness.partition(queue)).id
    assert (await harness.pop(queue, group, batch=1, auto_ack=True)).data == ["read"]
    assert partition.id in harness.store.tail_cache.tails
    if what == "clear":
        assert await harness.store.browse.clear(queue.id) > 0
    else:
        assert await harness.store.browse.delete(partition, stored.first + 1)
    await harness.push(queue, ["new"])
    taken = [each for _ in range(2) for each in (await harness.pop(queue, group, auto_ack=True)).data]
    assert taken == (["new"] if what == "clear" else ["older", "new"])


@pytest.mark.parametrize("what", ["clear", "delete the queue", "delete a message", "retention"])
async def test_what_was_deleted_after_its_push_is_never_delivered(harness: Harness, what: str) -> None:
    queue, [group] = await followed(harness, retention_enabled=what == "retention", retention_seconds=60)
    old = await harness.push(queue, ["old", "older"])
    partition = (await harness.partition(queue)).id
    assert not caches_pushes(harness) or old.first in harness.store.tail_cache.tails[partition.id].segments
    left: list[Any] = []
    if what == "clear":
        assert await harness.store.browse.clear(queue.id) > 0
    elif what == "delete a message":
        assert await harness.store.browse.delete(partition, old.first)
        left = ["older"]
    elif what == "retention":
        harness.clock.advance(120)
        await run(harness)
    else:
        assert await harness.store.queues.delete(DEFAULT_TENANT, queue.name)
        queue = await harness.store.queues.ensure(DEFAULT_TENANT, queue.name)
        group = await harness.group(queue, "workers")
    assert (await harness.pop(queue, group, auto_ack=True)).data == left
    await harness.push(queue, ["new"])
    assert (await harness.pop(queue, group, auto_ack=True)).data == ["new"]


async def test_another_broker_gets_the_same_messages(harness: Harness) -> None:
    queue, [group, other] = await followed(harness, "a", "b")
    second = await harness.open_second()
    expected = []
    for n in range(6):  # each has only some of the segments
        await harness.push(queue, [f"{n} {BIG}"], store=(harness.store, second)[n % 2])
        expected.append(f"{n} {BIG}")
    assert (await harness.pop(queue, group, store=second)).data == expected
    assert (await harness.pop(queue, other)).data == expected


async def test_nothing_is_lost_by_a_restart(harness: Harness) -> None:
    queue, [group] = await followed(harness)
    await harness.push(queue, ["before"])
    await harness.reopen()
    await harness.push(queue, ["after"])
    assert (await harness.pop(queue, group)).data == ["before", "after"]


async def test_only_what_was_stored_is_cached(harness: Harness) -> None:
    queue, [group] = await followed(harness)
    ids = [harness.mint()]
    await harness.push(queue, ["first"], ids=ids)
    assert isinstance(await harness.try_push(queue, ["repeated"], ids=ids), Duplicates)
    await harness.push(queue, ["second"])
    assert (await harness.pop(queue, group)).data == ["first", "second"]


@pytest.mark.parametrize("column", ["checksum", "created_at"])
async def test_an_entry_that_the_store_describes_otherwise_is_not_used(harness: Harness, column: str) -> None:
    """As after a restore of the database to a time before the push."""
    queue, [group, other] = await followed(harness, "a", "b")
    stored = await harness.push(queue, ["true"])
    if caches_pushes(harness):
        tail = harness.store.tail_cache.tails[(await harness.partition(queue)).id.id]
        segment = tail.segments[stored.first]
        other_values = {column: getattr(segment, column) - 1, "body": segment.body.replace(b"true", b"fals")}
        tail.segments[stored.first] = msgspec.structs.replace(segment, **other_values)
    for each in (group, other):
        assert (await harness.pop(queue, each)).data == ["true"]


async def test_damage_in_the_store_is_still_found_by_others(harness: Harness) -> None:
    """A cached message is delivered as it was pushed. A pop that reads the store finds the damage."""
    queue, [group] = await followed(harness)
    stored = await harness.push(queue, ["good"])
    partition = (await harness.partition(queue)).id
    statement = "UPDATE fairlane.segments SET body = $1 WHERE partition_id = $2 AND first_pos = $3 RETURNING 1"
    assert await harness.backend.sql(statement, b"bad", partition.id, stored.first)
    taken = await harness.pop(queue, group)
    if caches_pushes(harness):
        assert taken.data == ["good"]
    await harness.reopen()
    taken = await harness.pop(queue, await harness.group(queue, "another"))
    with pytest.raises(Exception, match="checksum"):
        list(taken.messages)


async def test_messages_of_encrypted_queues_are_cached_sealed(harness: Harness) -> None:
    await harness.store.codec.set_keyring(Keyring([os.urandom(32)]))
    queue, [group, other] = await followed(harness, "a", "b", encryption_enabled=True)
    stored = await harness.push(queue, ["secret"])
    if caches_pushes(harness):
        partition = (await harness.partition(queue)).id
        segment = harness.store.tail_cache.tails[partition.id].segments[stored.first]
        assert b"secret" not in segment.body
    assert (await harness.pop(queue, group)).data == ["secret"]
    await harness.store.codec.set_keyring(None)
    taken = await harness.pop(queue, other)
    with pytest.raises(Exception, match="key"):
        list(taken.messages)


async def test_the_cache_stays_within_its_bytes(harness: Harness) -> None:
    queue, [group, other] = await followed(harness, "a", "b")
    cache, before = harness.store.tail_cache, harness.store.tail_cache.bytes_max
    cache.limit(min(before, 20_000))
    try:
        for n in range(60):
            await harness.push(queue, [f"{n} {BIG}"], partition=f"lane {n % 7}")
            held = [segment for tail in cache.tails.values() for segment in tail.segments.values()]
            assert sum(len(segment.body) for segment in held) <= cache.bytes <= 20_000
        assert held or not caches_pushes(harness), "the newest stay"
        for each in (group, other):
            found = [await harness.pop(queue, each, batch=100) for _ in range(7)]
            assert sorted(int(text.split()[0]) for taken in found for text in taken.data) == list(range(60))
        cache.limit(0)
        assert (cache.bytes, len(cache.tails), len(cache._of_queue)) == (0, 0, 0)
        await harness.push(queue, ["not cached"], partition="alone")
        assert not cache.tails
    finally:
        cache.limit(before)


async def test_a_backlog_is_not_cached(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, ["old"])
    harness.clock.advance(60)
    assert await harness.pop(queue, group, auto_ack=True)
    await harness.push(queue, ["new"])
    assert (await harness.partition(queue)).id.id not in harness.store.tail_cache.tails
