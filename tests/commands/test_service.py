"""The service of a broker that runs the commands of applied specs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.commands.executors import Executors, WorkerExecutor
from fairlane.commands.service import CommandService
from fairlane.config import named_variables
from fairlane.errors import CommandFailed
from fairlane.model.names import COMMANDS
from fairlane.outbound.addresses import Allowed
from fairlane.outbound.client import OutboundClient
from tests.commands.conftest import HOST, LOOPBACK, Certificates, Serving, said
from tests.spec.samples import compiled
from tests.until import until

SPEC = """
app Shop {
  queue Orders { map_to: command Bill { order: id } }
  queue Moves { map_to: command Move { id: id } }
  queue Bills { message_type { id: int } }
  command Bill { input { order: int }  run: http POST "https://incidents.example:PORT/api"  secret_env: "SHOP_SECRET" }
  command Move { input { id: int }  run: queue Bills }
  command Free { input { id: int } }
}
"""


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setenv("SHOP_SECRET", "whsec_" + "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    async with Broker.open("sqlite:///:memory:") as broker:
        yield broker


async def apply(broker: Broker, text: str) -> None:
    await broker.specs.apply(msgspec.json.encode(compiled(text).spec), consent=True)


@contextlib.asynccontextmanager
async def serviced(broker: Broker, client: OutboundClient | None = None) -> AsyncIterator[CommandService]:
    executors = Executors(broker, lambda: client or OutboundClient(), named_variables)
    service = CommandService(broker, executors)
    service.start()
    try:
        yield service
    finally:
        await service.stop()
        await executors.close()


async def test_a_spec_that_is_applied_is_carried_out_and_one_that_is_replaced_no_longer(
    broker: Broker, serving: Serving, certificates: Certificates
) -> None:
    async def lookup(host: str) -> list[Any]:
        return [LOOPBACK]

    async with serving(said(200, b'{"bill": 1}'), trust=certificates.server) as answers:
        allowed = Allowed.parse([f"{HOST}:{answers.port}"])
        client = OutboundClient(allowed, lookup=lookup, trust=certificates.client)
        text = SPEC.replace("PORT", str(answers.port))
        async with serviced(broker, client) as service:
            await apply(broker, text)
            await service.refresh()
            await broker.push("Orders", {"id": 7})
            await broker.push("Moves", {"id": 8})

            async def result() -> bytes | None:
                groups = {group.name: group for group in await broker.groups.all("Orders")}
                lanes = await broker.groups.lanes("Orders", COMMANDS) if COMMANDS in groups else []
                return (
                    await broker._engine.store.groups.result(groups[COMMANDS].id, lanes[0].partition, 0)
                    if lanes
                    else None
                )

            kept = msgspec.json.decode(await until(result))
            assert (kept["status"], kept["body"]) == (200, {"bill": 1})
            [asked] = answers.asked
            assert asked.body == b'{"order":7}'
            assert (await broker.pop("Bills", wait=5))[0].data == {"id": 8}
            counts = broker.process.telemetry.commands
            assert (counts["Bill"].done.count, counts["Move"].done.count) == (1, 1)
            await apply(broker, text.replace("run: queue Bills", ""))
            await service.refresh()
            await broker.push("Moves", {"id": 9})
            [left] = await broker.pop("Moves", group=COMMANDS, wait=5)
            assert left.data == {"id": 9}


async def test_a_missing_secret_lets_messages_wait_and_others_go_on(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await apply(broker, SPEC.replace("PORT", "443"))
    monkeypatch.delenv("SHOP_SECRET")
    await broker.push("Orders", {"id": 7})
    await broker.push("Moves", {"id": 8})
    async with serviced(broker) as service:
        assert (await broker.pop("Bills", wait=5))[0].data == {"id": 8}
        await service.refresh()
    assert [record.message for record in caplog.records].count(
        "cannot run command Bill for queue 'Orders': the environment variable SHOP_SECRET is "
        "not set for the broker, but a spec needs it for a secret; set it and restart the broker"
    ) == 1
    [left] = await broker.pop("Orders", group=COMMANDS)
    assert left.failed_attempts == 0


async def test_a_command_at_once_is_pushed_once_or_carried_out_by_a_worker(broker: Broker) -> None:
    await apply(broker, SPEC.replace("PORT", "443"))
    async with serviced(broker):
        run = partial(Executors(broker, OutboundClient, named_variables).run, broker.tenant)
        first = await run("Move", b'{"id":1}', idempotency_key="Webhook:1")
        assert msgspec.json.decode(first)["queue"] == "Bills"
        assert await run("Move", b'{"id":1}', idempotency_key="Webhook:1") == first
        assert len(await broker.pop("Bills", batch=10)) == 1
        with pytest.raises(CommandFailed, match="id: expected int") as refused:
            await run("Move", b'{"id":"x"}', idempotency_key="Webhook:2")
        assert not refused.value.retryable

        async def work(status: Any, **said: Any) -> None:
            [message] = await broker.pop("Free", wait=5)
            await broker.ack(message, status, **said)

        completions: list[tuple[dict[str, Any], bytes]] = [({"result": {"n": 1}}, b'{"n":1}'), ({}, b"null")]
        for number, (said, came) in enumerate(completions):
            running = asyncio.create_task(run("Free", b'{"id":1}', idempotency_key=f"Webhook:{number}"))
            await work("completed", **said)
            assert await running == came
            assert await run("Free", b'{"id":1}', idempotency_key=f"Webhook:{number}") == came
        running = asyncio.create_task(run("Free", b'{"id":1}', idempotency_key="Webhook:9"))
        await work("dlq", error="no such thing")
        with pytest.raises(CommandFailed, match="dead letter: no such thing"):
            await running
        with pytest.raises(CommandFailed, match="no worker") as waited:
            await WorkerExecutor(broker, seconds=0.02).run("Free", b'{"id":1}', idempotency_key="Webhook:10")
        assert waited.value.retryable


async def test_commands_of_every_tenant_are_carried_out_in_its_own_queues(broker: Broker) -> None:
    await broker.tenants.create("other")
    other = broker.of("other")
    await apply(other, SPEC.replace("PORT", "443"))
    async with serviced(broker):
        await other.push("Moves", {"id": 8})
        [moved] = await other.pop("Bills", wait=5)
    assert moved.data == {"id": 8}
    assert await broker.queues.all() == []
