"""A store with rows of every kind, and what its users see of it."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane import Broker, PushItem
from fairlane.model.message import Message
from fairlane.model.outcome import PushOutcome
from fairlane.wire.schedules import ScheduleOptions
from tests.spec.samples import compiled

KEY = "3f9a1c5e7b20d84f6a13b5c7e9d2048a1f6b3c5d7e8091a2b4c6d8eaf0123457"
SPEC = "app Shop { queue Shipped {} }"
TRACE = "0198c2d1-7a34-7c11-b1f0-3d2f9c6a5e10"
GROUPS = ("billing", "stock")


async def fill(broker: Broker, *, sealed: bool = True) -> None:
    """Leave messages, groups and other rows in every state."""
    await broker.queues.configure("orders", retry_limit=0, max_size=100_000, retention_enabled=True, ttl_seconds=90_000)
    await broker.queues.configure("jobs", ordering="unordered", retry_limit=5)
    await broker.queues.configure("secrets", encryption_enabled=sealed)
    for partition in ("a", "b", "c"):
        await broker.push_many([PushItem(queue="orders", partition=partition, payload=b"%d" % n) for n in range(10)])
    await broker.push(
        "orders", {"text": "ü\n"}, partition="a", transaction_id="given", type="order", headers={"k": "v"}
    )
    await broker.push("orders", 12, partition="a", trace_id=TRACE, max_attempts=7)
    await broker.push("orders", "later", partition="a", transaction_id="later", delay_ms=3_600_000)
    await broker.push("orders", "latest", partition="a", delay_ms=7_200_000)
    for group in GROUPS:
        batch = await broker.pop("orders", group=group, partition="a", batch=4)
        await broker.ack(batch[:2], result={"done": True})
        await broker.nack(batch[2], error="no such card")
        await broker.release(batch)
    await broker.pauses.pause("orders", partition="b")
    for number in range(10):
        await broker.push("jobs", number, partition="p")
    taken = await broker.pop("jobs", partition="p", batch=5)
    await broker.ack(taken[3])
    await broker.nack(taken[1], error="try again")
    await broker.release(taken)
    await broker.push_many([PushItem(queue="secrets", partition="s", payload=b'{"card":%d}' % n) for n in range(3)])
    await broker.ack((await broker.pop("secrets", partition="s", batch=1))[0])
    await broker.schedules.define("nightly", ScheduleOptions(queue="reports", every_seconds=31_536_000))
    await broker.specs.apply(msgspec.json.encode(compiled(SPEC).spec), consent=True)
    await broker.keys.create("producer", scopes=["push"])
    await broker.tenants.create("north")
    await broker.of("north").push("orders", "of another tenant", partition="n")


async def seen(broker: Broker) -> dict[str, Any]:
    """Return what users see of a store, without changing it."""
    found: dict[str, Any] = {}
    for queue in await broker.queues.all():
        shown = {f"{one.name}": (one.head, one.start) for one in await broker.queues.counted(queue.name)}
        found[queue.name] = [queue.options, await broker.pauses.all(queue.name), shown]
        found[f"{queue.name} letters"] = [
            (one.message_id, bytes(one.raw), one.error, one.errors, one.group)
            for one in await broker.dead_letters.page(queue.name)
        ]
        scheduled = await broker.scheduled.page(queue.name)
        found[f"{queue.name} scheduled"] = [(one.transaction_id, one.deliver_at) for one in scheduled.messages]
        for group in await broker.groups.all(queue.name):
            lanes = await broker.groups.lanes(queue.name, group.name)
            found[f"{queue.name} {group.name}"] = sorted((lane.name, lane.committed, lane.dead) for lane in lanes)
    found["schedules"] = await broker.schedules.all()
    found["specs"] = [(one.app, one.version, one.hash) for one in await broker.specs.all()]
    found["keys"] = [(one.name, one.scopes, one.id) for one in await broker.keys.all()]
    found["tenants"] = [one.name for one in await broker.tenants.all()]
    return found


async def drain(broker: Broker, queue: str, group: str, partition: str) -> list[Message[Any]]:
    """Read everything that a group has left in a partition."""
    found: list[Message[Any]] = []
    while batch := await broker.pop(queue, group=group, partition=partition, batch=1000):
        found += batch
        await broker.ack(batch)
    return found


async def later(broker: Broker) -> PushOutcome:
    """Schedule a message again that waits already."""
    return await broker.push("orders", 0, partition="a", transaction_id="later", delay_ms=3_600_000)
