"""Changes of queues reach every broker through a version in the store that no broker can consume."""

from __future__ import annotations

import pytest

from fairlane.broker import catalogue
from fairlane.model.names import DEFAULT_TENANT
from fairlane.store.families import queues
from tests.conformance.harness import Harness
from tests.until import until


async def test_the_version_rises_with_every_change_and_names_its_queue(harness: Harness) -> None:
    one, two = await harness.queue(), await harness.queue()
    before, _ = await harness.store.queues.changes(0)
    assert await harness.store.queues.changes(before) == (before, [])
    await harness.configure(one, max_size=5)
    await harness.configure(two, max_size=5)
    between, _ = await harness.store.queues.changes(before)
    await harness.store.queues.delete(DEFAULT_TENANT, one.name)
    assert await harness.store.queues.changes(before) == (before + 3, [one.id, two.id, one.id])
    assert await harness.store.queues.changes(between) == (before + 3, [one.id])


async def test_changes_too_long_ago_are_not_known(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "CHANGES_MAX", 2)
    queue = await harness.queue()
    before, _ = await harness.store.queues.changes(0)
    between = before
    for size in range(1, 5):
        await harness.configure(queue, max_size=size)
        if size == 2:
            between, _ = await harness.store.queues.changes(between)
    assert await harness.store.queues.changes(before) == (before + 4, None)
    assert await harness.store.queues.changes(between) == (before + 4, [queue.id] * 2)


async def test_what_one_broker_changes_every_broker_forgets(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_QUEUE_SECONDS", 3600)  # polling would not find it in time
    name = harness.name("orders")
    first = harness.broker
    others = [await harness.second_broker() for _ in range(2)]
    await first.queues.configure(name, lease_seconds=7)
    for broker in others:
        await broker.push(name, 1)

    async def all_know(seconds: int) -> bool:
        found = [await broker._engine.catalogue.existing(DEFAULT_TENANT, name) for broker in (first, *others)]
        return all(queue.options.lease_seconds == seconds for queue in found)

    await until(lambda: all_know(7))
    await first.queues.configure(name, lease_seconds=9)
    await until(lambda: all_know(9))
