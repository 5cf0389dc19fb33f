"""Pops by namespace and task over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.wire import Wire
from tests.until import SECONDS_MAX, until


async def pop_any(wire: Wire, **query: Any) -> list[Any]:
    answer = await wire.get("/api/v1/pop", **{"batch": 10, **query})
    found: list[Any] = [] if answer.status == 204 else answer.ok()["messages"]
    return found


async def test_any_queue_of_a_namespace_answers_and_names_itself(wire: Wire) -> None:
    namespace = wire.name("namespace")
    queues = [wire.name() for _ in range(3)]
    for number, queue in enumerate(queues):
        await wire.configure(queue, namespace=namespace, task=f"t{number}")
    await wire.push(queues[1], "one")
    await wire.push(queues[2], "two", "three")
    seen: dict[str, list[Any]] = {}
    while messages := await pop_any(wire, namespace=namespace):
        for message in messages:
            seen.setdefault(message["queue"], []).append(message["data"])
        await wire.ack(messages)
    assert seen == {queues[1]: ["one"], queues[2]: ["two", "three"]}


async def test_namespace_and_task_narrow_the_choice(wire: Wire) -> None:
    namespace = wire.name("namespace")
    wanted, other = wire.name(), wire.name()
    await wire.configure(wanted, namespace=namespace, task="wanted")
    await wire.configure(other, namespace=namespace, task="other")
    await wire.push(other, 1)
    assert await pop_any(wire, namespace=namespace, task="wanted") == []
    await wire.push(wanted, 2)
    [message] = await pop_any(wire, namespace=namespace, task="wanted", consumerGroup="g", autoAck="true")
    assert (message["data"], message["queue"], message["consumerGroup"], message["leaseId"]) == (2, wanted, "g", "")
    assert await pop_any(wire, task=wire.name("nobody")) == []


@pytest.mark.usefixtures("only_when_told")
async def test_a_waiting_pop_is_woken_by_any_of_its_queues(wire: Wire) -> None:
    namespace = wire.name("namespace")
    one, two = wire.name(), wire.name()
    for queue in (one, two):
        await wire.configure(queue, namespace=namespace)
    for queue in (two, one):
        waiting = asyncio.create_task(pop_any(wire, namespace=namespace, wait="true", timeout=120_000))
        await until(lambda: len(wire.app.broker._engine.waiters) >= 3)
        await wire.push(queue, queue)
        [message] = await waiting
        assert message["queue"] == queue


async def test_a_waiting_pop_sees_a_queue_that_is_made_meanwhile(wire: Wire) -> None:
    namespace = f"made{wire.name()[-8:]}"
    waiting = asyncio.create_task(pop_any(wire, namespace=namespace, wait="true", timeout=120_000))
    await until(lambda: len(wire.app.broker._engine.waiters))
    await wire.push(f"{namespace}.task", 1)
    [message] = await asyncio.wait_for(waiting, SECONDS_MAX)
    assert message["queue"] == f"{namespace}.task"


async def test_a_waiting_pop_ends_when_its_time_is_over(wire: Wire) -> None:
    answer = await wire.get("/api/v1/pop", namespace=wire.name("nobody"), wait="true", timeout=50)
    assert answer.status == 204


async def test_a_pop_without_queue_and_labels_is_refused(wire: Wire) -> None:
    (await wire.get("/api/v1/pop")).refused(400)
    (await wire.get("/api/v1/pop", namespace="")).refused(400)
    (await wire.get("/api/v1/pop", namespace="n", batch="x")).refused(400)
