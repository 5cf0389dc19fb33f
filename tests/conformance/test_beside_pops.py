"""Verbs of operators concurrent with a pop that has not committed yet: each takes effect after the pop.

On PostgreSQL the verb meets the locks of the pop, and rows that no other transaction sees. On SQLite there is one
writer, so the same calls run one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from fairlane.model.group import Group, Seek
from fairlane.model.ids import PartitionId
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.queue import Queue
from fairlane.store.contract.values import AckResult, DeadFilter, LaneAck, Nack
from tests.conformance.backends import Row
from tests.conformance.harness import Harness, Taken
from tests.conformance.test_retention import run as run_retention
from tests.until import until

T = TypeVar("T")
ORDERINGS = pytest.mark.parametrize("ordering", ["per_key", "unordered"])
DAY = 86_400


@dataclass
class Scene:
    """A queue with one lane, whose pops run concurrently with another call."""

    harness: Harness
    queue: Queue
    group: Group
    partition: PartitionId

    async def meet(self, verb: Coroutine[Any, Any, T], **popped: Any) -> tuple[Taken, T]:
        """Run a verb before a pop commits. Returns what the pop got and what the verb answered."""
        stopped = self.harness.stopped_pop(self.queue, self.group, **popped)
        async with asyncio.TaskGroup() as tasks, stopped as (taken, arrived):
            met = tasks.create_task(verb)
            await arrived(met)
        return taken, met.result()

    async def settle(self, taken: Taken, *, nack: Nack | None = None) -> AckResult:
        """Ack the messages taken from the lane, or fail one of them."""
        if self.queue.options.ordering != "unordered":
            return await (self.harness.nack(taken, nack.position) if nack else self.harness.ack(taken))
        done = [] if nack else [(lane.first, lane.upto) for lane in taken.lanes]
        ack = LaneAck(
            unordered=True,
            partition=self.partition,
            group_id=self.group.id,
            token=taken.token,
            done=done,
            nacks=[nack] if nack else [],
        )
        [acked] = await self.harness.store.messages.ack([ack])
        return acked

    async def drain(self) -> list[Any]:
        """Pop and ack until nothing is ready. Each message must come alone and at its first attempt."""
        seen: list[Any] = []
        while taken := await self.harness.pop(self.queue, self.group, batch=1):
            assert taken.lane.attempts == 0
            seen += taken.data
            assert (await self.settle(taken)).state == "ok"
        return seen

    async def later(self) -> list[Any]:
        """Return what is delivered after every lease has expired and a message was pushed."""
        self.harness.clock.advance(DAY)
        await self.harness.push(self.queue, ["later"])
        return await self.drain()

    async def rows(self, table: str) -> int:
        """Return the rows of the lane in one of its tables."""
        statement = f"SELECT count(*) FROM fairlane.{table} WHERE partition_id = $1 AND group_id = $2"
        [row] = await self.harness.backend.sql(statement, self.partition.id, self.group.id)
        return int(row[0])


async def scene(harness: Harness, ordering: str, messages: int = 4, **options: Any) -> Scene:
    queue = await harness.queue("beside", ordering=ordering, **options)
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, list(range(messages)))
    return Scene(harness, queue, group, partition.id)


def what(it: Scene, kind: str) -> dict[str, Any]:
    """The target that is paused or resumed, by kind."""
    group = {"group_id": it.group.id} if kind in ("group", "lane") else {}
    return {**group, **({"partition": it.partition} if kind in ("partition", "lane") else {})}


KINDS = pytest.mark.parametrize("kind", ["queue", "group", "partition", "lane"])


@ORDERINGS
@KINDS
async def test_what_is_resumed_beside_a_pop_that_met_the_pause_goes_on(
    harness: Harness, ordering: str, kind: str
) -> None:
    it = await scene(harness, ordering)
    pauses = harness.store.pauses
    assert await pauses.pause(it.queue.id, **what(it, kind))
    taken, resumed = await it.meet(pauses.resume(it.queue.id, **what(it, kind)))
    assert not taken
    assert resumed
    assert await it.drain() == [0, 1, 2, 3]


@ORDERINGS
async def test_a_resume_wakes_a_lane_that_is_stopped_though_nothing_is_paused(harness: Harness, ordering: str) -> None:
    it = await scene(harness, ordering)
    await stopped_for_nothing(it)
    assert not await harness.pop(it.queue, it.group)
    assert not await harness.store.pauses.resume(it.queue.id, partition=it.partition), "nothing was paused"
    assert await it.drain() == [0, 1, 2, 3]


async def stopped_for_nothing(it: Scene) -> None:
    """Leave the state of a missed wake-up: a lane that waits to be resumed although nobody paused it."""
    await it.harness.store.pauses.pause(it.queue.id, partition=it.partition)
    assert not await it.harness.pop(it.queue, it.group)
    await it.harness.backend.sql("UPDATE fairlane.partitions SET paused_at = NULL WHERE id = $1", it.partition.id)


@ORDERINGS
@KINDS
async def test_what_is_paused_beside_a_pop_is_paused_behind_it(harness: Harness, ordering: str, kind: str) -> None:
    it = await scene(harness, ordering)
    pauses = harness.store.pauses
    taken, paused = await it.meet(pauses.pause(it.queue.id, **what(it, kind)), batch=2)
    assert (paused, taken.data) == (True, [0, 1])
    assert not await harness.pop(it.queue, it.group)
    assert (await it.settle(taken)).state == "ok", "who holds a lease may finish"
    assert not await harness.pop(it.queue, it.group)
    assert await pauses.resume(it.queue.id, **what(it, kind))
    assert await it.drain() == [2, 3]


@pytest.mark.parametrize("policy", ["block", "park"])
async def test_lanes_resumed_beside_a_pop_that_stops_one_can_be_resumed(harness: Harness, policy: str) -> None:
    it = await scene(harness, "per_key", 2, retry_limit=0, on_exhausted=policy, lease_seconds=5)
    await harness.pop(it.queue, it.group)
    harness.clock.advance(5)
    taken, resumed = await it.meet(harness.store.pauses.resume_lanes(it.group.id))
    assert not taken, "its message is out of attempts"
    resumed += await harness.store.pauses.resume_lanes(it.group.id)
    assert resumed == 1
    assert await it.drain() == [0, 1]


@ORDERINGS
@pytest.mark.parametrize(("to", "named"), [("beginning", False), ("end", True)], ids=["all_back", "one_to_the_end"])
@pytest.mark.parametrize("before", ["nothing", "lost", "failed"])
async def test_a_seek_beside_a_pop_leaves_nothing_of_it(
    harness: Harness, ordering: str, named: bool, to: str, before: str
) -> None:
    """The lease of the pop is gone, and so is the attempt that it charges for an earlier lease."""
    it = await scene(harness, ordering, retry_limit=2, lease_seconds=5)
    if before == "failed":
        await it.settle(await harness.pop(it.queue, it.group), nack=Nack(0, charge=True, error="boom"))
    if before == "lost":
        await harness.pop(it.queue, it.group)
        harness.clock.advance(5)
    seek = Seek("beginning" if to == "beginning" else "end")
    only = it.partition if named else None
    taken, moved = await it.meet(harness.store.groups.seek(it.group.id, seek, partition=only), batch=3)
    assert moved == 1
    assert taken
    assert [await it.rows(table) for table in ("claims", "failures")] == [0, 0]
    assert (await harness.renew(taken.lease, seconds=60)).renewed == 0
    assert (await it.settle(taken)).state != "ok" or ordering == "unordered"
    assert await it.drain() == ([0, 1, 2, 3] if to == "beginning" else [])
    assert await it.later() == ["later"]
    assert await harness.store.queues.depth(it.queue.id) == 0


@pytest.mark.parametrize("option", ["delay_seconds", "window_seconds"])
async def test_an_option_taken_back_beside_a_pop_that_goes_by_it_frees_the_lane(harness: Harness, option: str) -> None:
    it = await scene(harness, "per_key", **{option: DAY})
    taken, _ = await it.meet(harness.configure(it.queue))
    assert not taken
    assert await it.drain() == [0, 1, 2, 3]


async def test_a_pop_that_waits_behind_an_option_taken_back_goes_by_what_holds_now(harness: Harness) -> None:
    """A pop of a limited queue has read the options and waits for the queue's row."""
    queue = await harness.queue(delay_seconds=DAY, max_size=100)
    group = await harness.group(queue)
    asleep, partition = await harness.neighbours(queue, 2)
    await harness.push(queue, ["asleep"], partition=asleep.name)
    assert not await harness.pop(queue, group)
    await harness.push(queue, ["first"], partition=partition.name)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(asleep.id, group.id)) as arrived:
        configured = tasks.create_task(harness.configure(queue, max_size=100))
        await arrived(configured)
        pop = tasks.create_task(harness.pop(queue, group, partition=partition.id))
        await arrived(configured, pop)
    seen = pop.result().data
    if pop.result():
        await harness.ack(pop.result())
    assert sorted(seen + await harness.drain(queue, group)) == ["asleep", "first"]


@ORDERINGS
@pytest.mark.parametrize("named", [False, True], ids=["all", "one"])
async def test_what_is_cleared_beside_a_pop_is_gone_from_its_hands_too(
    harness: Harness, ordering: str, named: bool
) -> None:
    it = await scene(harness, ordering, max_size=0)
    only = it.partition if named else None
    taken, cleared = await it.meet(harness.store.browse.clear(it.queue.id, partition=only), batch=3)
    assert (taken.data, cleared) == ([0, 1, 2], 4)
    assert (await harness.renew(taken.lease, seconds=60)).renewed == 0
    assert [await it.rows(table) for table in ("claims", "failures")] == [0, 0]
    assert await harness.store.queues.depth(it.queue.id) == 0
    assert await it.drain() == []
    assert await it.later() == ["later"]


@ORDERINGS
@pytest.mark.parametrize("keep", [False, True], ids=["whole", "begun_anew"])
async def test_a_group_deleted_beside_its_pop_leaves_nothing(harness: Harness, ordering: str, keep: bool) -> None:
    it = await scene(harness, ordering, lease_seconds=5)
    await harness.pop(it.queue, it.group, batch=1)
    harness.clock.advance(5)
    taken, deleted = await it.meet(harness.store.groups.delete(it.group.id, keep_subscription=keep), batch=3)
    assert taken
    assert deleted == 1
    assert [await it.rows(table) for table in ("cursors", "claims", "failures")] == [0, 0, 0]
    assert (await it.settle(taken)).state in ("lost", "gone")
    it.group = await harness.group(it.queue)
    assert await it.drain() == [0, 1, 2, 3]


@ORDERINGS
async def test_a_queue_deleted_beside_its_pop_leaves_nothing(harness: Harness, ordering: str) -> None:
    it = await scene(harness, ordering, lease_seconds=5)
    await harness.pop(it.queue, it.group, batch=1)
    harness.clock.advance(5)
    taken, deleted = await it.meet(harness.store.queues.delete(DEFAULT_TENANT, it.queue.name), batch=3)
    assert taken
    assert deleted
    assert (await it.settle(taken)).state in ("lost", "gone")

    async def gone() -> bool:
        return sum([await it.rows(table) for table in ("cursors", "claims", "failures")]) == 0

    await until(gone)


@ORDERINGS
async def test_retention_beside_a_pop_spares_what_it_took(harness: Harness, ordering: str) -> None:
    it = await scene(harness, ordering, retention_enabled=True, retention_seconds=10)
    taken = await harness.pop(it.queue, it.group, batch=1)
    await it.settle(taken)
    harness.clock.advance(10)
    taken, _ = await it.meet(run_retention(harness), batch=2)
    assert taken.data == [1, 2]
    [state] = await harness.store.statistics.partitions(it.queue.id)
    assert state.start == 1
    assert (await it.settle(taken)).state == "ok"
    assert await it.drain() == [3]


@ORDERINGS
@pytest.mark.parametrize("verb", ["delete", "dead_letter"])
async def test_a_message_taken_out_beside_the_pop_of_it_comes_no_more(
    harness: Harness, ordering: str, verb: str
) -> None:
    it = await scene(harness, ordering, max_size=10, lease_seconds=5)
    browse = harness.store.browse
    call = (
        browse.delete(it.partition, 1) if verb == "delete" else browse.dead_letter(it.partition, it.group.id, 1, "no")
    )
    taken, _ = await it.meet(call, batch=3)
    assert taken.data == [0, 1, 2]
    await harness.store.messages.release(taken.lease)
    assert await it.drain() == [0, 2, 3]
    assert await harness.store.queues.depth(it.queue.id) == 0
    assert await it.later() == ["later"]


@ORDERINGS
async def test_a_lease_released_beside_the_pop_that_took_it_over_releases_nothing(
    harness: Harness, ordering: str
) -> None:
    it = await scene(harness, ordering, 1, lease_seconds=5)
    first = await harness.pop(it.queue, it.group)
    harness.clock.advance(5)
    taken, released = await it.meet(harness.store.messages.release(first.lease))
    assert released == 0
    assert not await harness.pop(it.queue, it.group)
    assert (await it.settle(taken)).state == "ok"


@ORDERINGS
@pytest.mark.parametrize("verb", ["retention", "purge"])
async def test_a_dead_letter_removed_beside_the_pop_that_gives_up_again_is_the_old_one(
    harness: Harness, ordering: str, verb: str
) -> None:
    it = await scene(harness, ordering, 1, retry_limit=0, lease_seconds=5, dead_letter_retention_seconds=10)
    letters = harness.store.dead_letters
    await it.settle(await harness.pop(it.queue, it.group), nack=Nack(0, charge=True, error="first"))
    harness.clock.advance(10)
    old = DeadFilter(failed_until=harness.clock())
    await harness.store.groups.seek(it.group.id, Seek("beginning"))
    await harness.pop(it.queue, it.group)
    harness.clock.advance(5)
    removal = run_retention(harness) if verb == "retention" else letters.purge(it.queue.id, old)
    taken, _ = await it.meet(removal)
    assert not taken
    [letter] = await letters.page(it.queue.id, DeadFilter())
    assert letter.failed_at == harness.clock()


async def test_dead_letters_are_purged_beside_a_pop_that_gives_up_again_in_another_order(harness: Harness) -> None:
    it = await scene(harness, "per_key", 3, ttl_seconds=10)
    for position in (1, 2, 0):
        await harness.store.browse.dead_letter(it.partition, it.group.id, position, "by hand")
        harness.clock.advance(1)
    await harness.store.groups.seek(it.group.id, Seek("beginning"))
    harness.clock.advance(10)
    last = Row(
        "SELECT 1 FROM fairlane.dead_letters WHERE partition_id = $1 AND position = $2 FOR UPDATE",
        *(it.partition.id, 2),
    )
    async with asyncio.TaskGroup() as tasks, harness.hold(last) as arrived:
        purge = tasks.create_task(harness.store.dead_letters.purge(it.queue.id, DeadFilter()))
        await arrived(purge)
        pop = tasks.create_task(harness.pop(it.queue, it.group))
        await arrived(purge, pop)
    assert not pop.result()
    assert await it.later() == ["later"]
