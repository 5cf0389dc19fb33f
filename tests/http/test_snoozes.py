"""Findings that are snoozed, and the finding that names a tenant that floods."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from fairlane.broker import health_findings
from fairlane.model.ids import uuid7
from fairlane.model.message import PushItem
from tests.conformance.backends import Backend, PostgresBackend, SqliteBackend
from tests.conformance.configurations import Configuration
from tests.http.test_findings import PATH, alone, found, fresh, gone, use_up
from tests.http.wire import Wire
from tests.until import until

__all__ = ("alone", "fresh")


@pytest.fixture(params=["sqlite", "postgres18"])
def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A store of this test alone, because each test stops lanes of one queue."""
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "queue.db")
    return PostgresBackend(request.getfixturevalue("postgres18"), Configuration(f"http_{uuid7()}", postgres=18))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count everything for each request, however slow a busy machine is."""
    monkeypatch.setattr(health_findings, "_ANSWER_SECONDS", 60.0)


async def stop_lane(wire: Wire, queue: str, partition: str) -> None:
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="block")
    await wire.push(queue, 1, partition=partition)
    await use_up(wire, queue)


async def snooze(wire: Wire, key: str, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await wire.post(f"{PATH}/snooze", body={"key": key, **body})).ok()
    return answer


async def test_a_finding_is_snoozed_for_a_time_and_is_still_listed_and_measured(alone: Wire) -> None:
    await stop_lane(alone, "mail", "customer/7")
    [one] = await found(alone, "lanes_stopped")
    assert one["key"] == "lanes_stopped/mail/__QUEUE_MODE__/customer%2F7"
    assert one["snoozedUntil"] is None
    answer = await snooze(alone, one["key"], seconds=3600)
    [snoozed] = await found(alone, "lanes_stopped")
    assert (snoozed["snoozedUntil"], snoozed["snoozedBy"]) == (answer["snoozedUntil"], answer["snoozedBy"])
    assert snoozed["snoozedUntil"] > snoozed["since"]
    metrics = (await alone.ask("GET", "/metrics")).body.decode()
    assert 'fairlane_findings{kind="lanes_stopped",queue="mail",severity="critical",snoozed="true"} 1.0' in metrics
    entries = (await alone.get("/api/v1/audit")).ok()["entries"]
    assert next(entry["target"] for entry in entries if entry["action"] == "status.snooze").endswith("seconds=3600")
    for deleted in (True, False):
        ended = (await alone.ask("DELETE", f"{PATH}/snooze?key={quote(one['key'], safe='')}")).ok()
        assert ended == {"key": one["key"], "deleted": deleted}
    assert (await found(alone, "lanes_stopped"))[0]["snoozedUntil"] is None


async def test_a_snooze_until_a_change_ends_when_the_count_doubles(alone: Wire) -> None:
    async def stopped(count: int) -> list[dict[str, Any]]:
        await use_up(alone, "mail")
        return await found(alone, "lanes_stopped", count=count)

    for number in range(3):
        await stop_lane(alone, "mail", f"p{number}")
    [one] = await until(lambda: stopped(3))
    await snooze(alone, one["key"])
    await stop_lane(alone, "mail", "p3")
    [more] = await until(lambda: stopped(4))
    assert more["snoozedUntil"]
    for number in (4, 5):
        await stop_lane(alone, "mail", f"p{number}")
    [many] = await until(lambda: stopped(6))
    assert many["snoozedUntil"] is None


async def test_a_snooze_until_a_change_ends_with_its_finding(alone: Wire) -> None:
    await stop_lane(alone, "mail", "p")
    [one] = await found(alone, "lanes_stopped")
    await snooze(alone, one["key"])
    (await alone.ask("POST", one["action"]["path"], body=one["action"]["body"])).ok()
    assert await gone(alone, "lanes_stopped")

    async def stopped() -> list[dict[str, Any]]:
        await use_up(alone, "mail")
        return await found(alone, "lanes_stopped")

    [again] = await until(stopped)
    assert (again["key"], again["snoozedUntil"]) == (one["key"], None)


async def test_what_is_not_a_finding_cannot_be_snoozed(alone: Wire) -> None:
    answer = await alone.post(f"{PATH}/snooze", body={"key": "lanes_stopped/nothing"})
    assert answer.status == 404
    assert "there is no finding 'lanes_stopped/nothing' now" in answer.json["error"]
    assert (await alone.post(f"{PATH}/snooze", body={"key": "x", "seconds": 0})).status == 400


async def test_a_tenant_that_floods_is_named_while_others_wait_for_their_turn(
    alone: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = alone.app.broker
    await broker.tenants.create("acme")
    gate, pushes = asyncio.Event(), broker._engine.admission.pushes
    store, flushes = pushes._flush, list[Any]()

    async def held(batch: list[Any]) -> Any:
        flushes.append(batch)
        if len(flushes) > 2:
            await gate.wait()
        return await store(batch)

    pushes._flush = held
    items = [PushItem(queue="mail", payload=b"1") for _ in range(90)]
    await broker.push("mail", 1)
    assert await gone(alone, "tenant_floods")
    flood = [asyncio.ensure_future(broker.of("acme").push_many(items)) for _ in range(20)]
    await until(lambda: len(flushes) > 2)
    [one] = await found(alone, "tenant_floods")
    assert (one["tenant"], one["page"], one["severity"]) == ("acme", "/tenants", "warning")
    assert re.match(r"The tenant 'acme' sends 99% of all messages, \d+ a second, and the pushes", one["sentence"])
    listed = {one["name"]: one["pushed"] for one in (await alone.get("/api/v1/tenants")).ok()["tenants"]}
    assert listed["acme"]["share"] > 0.9
    gate.set()
    await asyncio.gather(*flood)
    assert await found(alone, "tenant_floods"), "for some seconds, so that a scrape finds it"
    monkeypatch.setattr("fairlane.runtime.batcher._TURNS_SECONDS", 0.0)
    assert await gone(alone, "tenant_floods")
    metrics = (await alone.ask("GET", "/metrics")).body.decode()
    assert 'fairlane_tenant_messages_pushed_total{tenant="acme"} 1800.0' in metrics
