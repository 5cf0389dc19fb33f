"""Retention with producers, consumers of different speed, seeks and deletes: no message is lost or counted twice."""

from __future__ import annotations

import asyncio

from fairlane.model.group import Group, Seek
from fairlane.model.queue import Queue
from fairlane.model.retention import RETENTION, Expired
from tests.conformance.harness import Harness

ROUNDS = 8
PARTITIONS = ("a", "b", "c")
Message = tuple[str, int]
"""A position in a partition, which is given by its name."""


class Load:
    """The calls made on a queue, with the answers that their callers got."""

    def __init__(self, harness: Harness, queue: Queue) -> None:
        self.harness = harness
        self.queue = queue
        self.acked: set[Message] = set()
        self.deleted: set[Message] = set()
        self.expired: list[Expired] = []

    async def produce(self, lane: str) -> None:
        for n in range(3):
            await self.harness.push(self.queue, [n, n], partition=lane)

    async def consume(self, group: Group) -> None:
        while taken := await self.harness.pop(self.queue, group, batch=4):
            lane = taken.lane
            assert (await self.harness.ack(taken)).state == "ok"
            self.acked |= {(lane.name, at) for at in range(lane.first, lane.upto)}

    async def delete(self, lane: str, position: int) -> None:
        partition = await self.harness.partition(self.queue, lane)
        if await self.harness.store.browse.delete(partition.id, position):
            self.deleted.add((lane, position))

    async def retain(self, token: int) -> None:
        more = True
        while more:
            step = await self.harness.store.retention.step(token)
            self.expired += [one for one in step.expired if one.queue_id == self.queue.id]
            more = step.more


async def test_every_message_is_finished_waiting_expired_or_deleted_whatever_happens_at_once(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=10, lease_seconds=6)
    fast, slow, seeker = [await harness.group(queue, name) for name in ("fast", "slow", "seeker")]
    load = Load(harness, queue)
    for number in range(ROUNDS):
        token = await harness.store.leadership.lead(RETENTION, seconds=3600, early=True)
        assert token is not None
        await asyncio.gather(
            *(load.produce(lane) for lane in PARTITIONS),
            *([] if number % 3 == 1 else [load.consume(fast)]),
            harness.pop(queue, slow, batch=5),
            harness.store.groups.seek(seeker.id, Seek("beginning" if number % 2 else "end")),
            load.delete(PARTITIONS[number % 3], number * 4),
            load.delete(PARTITIONS[number % 3], number * 6 + 5),
            load.retain(token),
        )
        await harness.store.leadership.release(RETENTION, token, seconds=0)
        harness.clock.advance(4)
    heads = {state.name: state.head for state in await harness.store.statistics.partitions(queue.id)}
    assert heads == dict.fromkeys(PARTITIONS, ROUNDS * 6)
    assert load.acked
    assert load.deleted
    assert sum(one.messages for one in load.expired) > 0
    await each_has_one_fate(harness, load, fast, heads)
    census = await harness.drain(queue, await harness.group(queue, "census"))
    gone = sum(one.messages for one in load.expired) + len(load.deleted)
    assert len(census) == sum(heads.values()) - gone, "what is left is what was neither deleted nor expired"


async def each_has_one_fate(harness: Harness, load: Load, fast: Group, heads: dict[str, int]) -> None:
    """Check stored = finished + expired + deleted + waiting in every lane of a group that never sought."""
    for lane in await harness.store.groups.lanes(fast.id):
        over = {at for name, at in load.acked | load.deleted if name == lane.name and at < lane.committed}
        waiting = lane.head - lane.committed
        assert len(over) + lane.expired + waiting == heads[lane.name], lane
