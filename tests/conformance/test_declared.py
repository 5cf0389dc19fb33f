"""Queues that a spec in force declares: their options and the group of their commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import Conflict, ConsentNeeded, NotFound, SealError
from fairlane.model.group import Subscription
from fairlane.model.names import COMMANDS, DEFAULT_TENANT
from fairlane.model.queue import Queue, QueueOptions
from tests.conformance.harness import Harness
from tests.conformance.test_retention import run as run_retention
from tests.conformance.test_specs import document

MAPPED = "map_to: command Order.Ship { id: id }"


async def map_to_command(harness: Harness, queue: Queue) -> None:
    """Declare an existing queue in a spec that maps its messages to a command."""
    options = msgspec.structs.asdict(queue.options)
    await harness.broker.specs.apply(document(app_of(harness), f'queue "{queue.name}" {{ {MAPPED} }}'), consent=True)
    await harness.broker.queues.set_options(queue.name, **options)


def app_of(harness: Harness) -> str:
    return f"App{harness.token().hex}"


async def refused_push(broker: Broker, queue: str) -> None:
    """Push to an encrypted queue through a broker without keys, which must not store plain text."""
    with pytest.raises(SealError, match="is encrypted"):
        await broker.push(queue, {"id": 1})


async def test_a_declared_queue_has_the_options_of_its_spec_whoever_makes_it(harness: Harness) -> None:
    queue = harness.name("queue")
    text = f'queue "{queue}" {{ encrypted: true retention {{ max_depth: 3 }} {MAPPED} }}'
    broker, queues = harness.broker, harness.store.queues
    await broker.specs.apply(document(app_of(harness), text))
    declared = await broker.queues.existing(queue)
    assert declared.options.encryption_enabled
    makers: list[Callable[[], Awaitable[Any]]] = [
        lambda: queues.ensure(DEFAULT_TENANT, queue),
        lambda: broker.queues.configure(queue),
        lambda: refused_push(broker, queue),
    ]
    for make in makers:
        await broker.queues.delete(queue)
        await make()
        again = await broker.queues.existing(queue)
        assert (again.id != declared.id, again.options) == (True, declared.options)
        assert [group.name for group in await harness.store.groups.all(again.id)] == [COMMANDS]


async def test_a_queue_declared_encrypted_is_never_configured_to_store_in_clear(harness: Harness) -> None:
    app, queue = app_of(harness), harness.name("queue")
    broker = harness.broker
    await broker.specs.apply(document(app, f'queue "{queue}" {{ encrypted: true }}'))
    declared = await broker.queues.existing(queue)
    for there in (True, False):
        with pytest.raises(Conflict, match=f"declared encrypted by the spec of app '{app}'"):
            await broker.queues.configure(queue, encryption_enabled=False)
        if there:
            with pytest.raises(Conflict, match="declared encrypted"):
                await broker.queues.set_options(queue, encryption_enabled=False)
            await broker.queues.delete(queue)
    changed = await broker.queues.configure(queue, max_size=7)
    assert changed.options == msgspec.structs.replace(declared.options, max_size=7)
    await broker.specs.apply(document(app, f'queue "{queue}" {{ }}'), consent=True)
    assert not (await broker.queues.configure(queue)).options.encryption_enabled


async def test_a_queue_that_no_spec_declares_any_more_is_made_with_defaults(harness: Harness) -> None:
    app, queue = app_of(harness), harness.name("queue")
    await harness.broker.specs.apply(document(app, f'queue "{queue}" {{ retention {{ max_depth: 3 }} {MAPPED} }}'))
    await harness.broker.specs.apply(document(app, ""), consent=True)
    again = await harness.store.queues.ensure(DEFAULT_TENANT, queue)
    assert (again.options, await harness.store.groups.all(again.id)) == (QueueOptions(), [])


async def test_the_group_of_commands_is_made_with_map_to_and_deleted_with_it(harness: Harness) -> None:
    app, queue = app_of(harness), await harness.queue("mapped")
    groups = harness.broker.groups
    await harness.broker.push(queue.name, {"id": 1})
    await harness.broker.specs.apply(document(app, f'queue "{queue.name}" {{ {MAPPED} }}'), consent=True)
    [group] = await groups.all(queue.name)
    assert group.name == COMMANDS
    [lane] = await harness.store.groups.lanes(group.id)
    assert (lane.committed, lane.head) == (0, 1)

    without = document(app, f'queue "{queue.name}" {{ }}')
    with pytest.raises(ConsentNeeded, match="the group of its commands is deleted"):
        await harness.broker.specs.apply(without)
    await harness.broker.specs.apply(without, consent=True)
    assert await groups.all(queue.name) == []
    with pytest.raises(NotFound, match="no spec in force maps"):
        await harness.store.groups.subscribe(queue.id, COMMANDS, Subscription())
    assert await groups.all(queue.name) == []


async def test_commands_that_no_worker_has_run_yet_survive_retention_by_other_groups(harness: Harness) -> None:
    queue = harness.name("queue")
    text = f'queue "{queue}" {{ retention {{ completed_max_age_seconds: 1 }} {MAPPED} }}'
    broker = harness.broker
    await broker.specs.apply(document(app_of(harness), text))
    for n in range(3):
        await broker.push(queue, {"id": n})
    found = await broker.queues.existing(queue)
    await harness.drain(found, await harness.group(found, "analytics"))
    harness.clock.advance(3600)
    await run_retention(harness)
    assert [message.data for message in await broker.pop(queue, group=COMMANDS, batch=10)] == [
        {"id": n} for n in range(3)
    ]
