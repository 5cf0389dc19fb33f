"""Status, metrics, health and pauses over HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import Any

import pytest

from fairlane.errors import StoreUnavailable
from tests.http.wire import Wire
from tests.metrics import sample, samples
from tests.until import SECONDS_MAX, until

_SAMPLE = re.compile(r'(?:fairlane|process)_\w+(\{(\w+="(?:[^"\\\n]|\\.)*",?)+\})? [-+0-9.eInf]+')


async def work(wire: Wire, queue: str) -> None:
    """Push 3 messages, pop 3, ack 2, nack one, run a transaction and renew a lease."""
    await wire.configure(queue, retryLimit=5)
    await wire.push(queue, 1, 2, 3)
    messages = await wire.pop(queue)
    (await wire.post("/api/v1/lease", messages[0]["leaseId"], "extend")).ok()
    await wire.ack(messages[:2])
    await wire.ack(messages[2:], "failed", error="no")
    body = {"operations": [{"type": "push", "items": [{"queue": queue, "payload": 4}]}]}
    assert (await wire.post("/api/v1/transaction", body=body)).ok()["success"]


async def test_the_engine_shows_how_admission_decides(wire: Wire) -> None:
    await wire.push(wire.name(), 1, 2)
    admission = (await wire.get("/api/v1/status/engine")).ok()["admission"]
    assert admission["kinds"]["push"] == {
        "wait_seconds": 0.0,
        "wait_seconds_max": 2.0,
        "operations_max": 10_000,
        "decisions": {"execute": 1, "enqueue": 0, "refuse": 0},
    }
    assert admission["kinds"]["pop"]["operations_max"] == 0


async def test_the_engine_counts_each_kind_of_operation(wire: Wire) -> None:
    before = (await wire.get("/api/v1/status/engine")).ok()
    assert set(before["operations"]) == {"push", "pop", "ack", "transaction", "renew_lease"}
    assert all(operation["count"] == 0 for operation in before["operations"].values())
    await work(wire, wire.name())
    after = (await wire.get("/api/v1/status/engine")).ok()
    counts = {kind: (each["count"], each["items"], each["errors"]) for kind, each in after["operations"].items()}
    assert counts == {
        "push": (1, 3, 0),
        "pop": (1, 3, 0),
        "ack": (2, 3, 0),
        "transaction": (1, 1, 0),
        "renew_lease": (1, 1, 0),
    }
    push = after["operations"]["push"]
    assert 0 < push["avg_ms"] < 10_000
    assert push["avg_ms"] <= push["p99_ms"] * 1.01
    assert after["queue"]["completed"] == 6
    assert after["queue"]["pending"] == 0
    assert after["connections"]["total"] >= 1


async def test_waiting_polls_are_counted_and_do_not_lengthen_the_latency(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue)
    began = time.monotonic()
    waiting = asyncio.create_task(wire.pop(queue, wait="true", timeout=60_000))
    await until(wire.app.broker._engine.waiters.counts)
    assert (await wire.get("/api/v1/status/engine")).ok()["queue"]["parked"] >= 1
    await asyncio.sleep(0.5)
    await wire.push(queue, 1)
    assert len(await waiting) == 1
    unparked_ms = 1e3 * (time.monotonic() - began - 0.5)
    assert (await wire.get("/api/v1/status/engine")).ok()["operations"]["pop"]["avg_ms"] <= unparked_ms


async def test_metrics_are_prometheus_text_and_json_on_demand(wire: Wire) -> None:
    queue = wire.name()
    await work(wire, queue)
    answer = await wire.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    for line in lines:
        assert line.startswith("# ") or _SAMPLE.fullmatch(line), line
    families = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(families) == len(set(families))
    assert all(family.startswith(("fairlane_", "process_")) for family in families)
    found = samples(answer.body)
    assert found[sample("requests_total", verb="push")] == 1
    assert found[sample("request_messages_total", verb="ack")] == 3
    assert found[sample("request_duration_seconds_count", verb="pop")] == 1
    assert found[sample("queue_messages", queue=queue, state="pending")] == 2
    again = await wire.get("/metrics/prometheus")
    assert again.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    as_json = (await wire.get("/metrics", headers={"Accept": "application/json"})).ok()
    assert as_json["engine"]["operations"]["push"]["items"] == 3
    assert as_json["messages"]["total"] == 11
    assert as_json["memory"]["rss"] > 1_000_000


async def test_the_histogram_grows_to_its_count(wire: Wire) -> None:
    for _ in range(5):
        await wire.push(wire.name(), 1)
    found = samples((await wire.get("/metrics")).body)
    below = [
        value
        for (name, labels), value in found.items()
        if name == "fairlane_request_duration_seconds_bucket" and ("verb", "push") in labels
    ]
    assert below == sorted(below)
    assert below[-1] == 5


async def test_health_tells_whether_the_store_answers(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = (await wire.get("/health")).ok()
    assert (healthy["status"], healthy["database"]) == ("healthy", "connected")
    assert (await wire.get("/livez")).ok() == {"status": "alive"}
    assert (await wire.get("/readyz")).ok()["status"] == "ready"
    assert (await wire.get("/api/v1/status/buffers")).ok()["dbHealthy"] is True

    async def away() -> None:
        raise StoreUnavailable("gone")

    async def refused() -> Any:
        answer = await wire.get("/readyz")
        return answer if answer.status != 200 else None

    monkeypatch.setattr(wire.app.broker._engine.store, "check_health", away)
    assert (await wire.get("/livez")).ok() == {"status": "alive"}
    not_ready = await until(refused)
    assert (not_ready.status, not_ready.json["database"]) == (503, "disconnected")
    assert not_ready.headers["Retry-After"] == "1"
    unhealthy = await wire.get("/health")
    assert (unhealthy.status, unhealthy.json["status"]) == (503, "unhealthy")


async def test_a_broker_that_stops_is_not_ready(wire: Wire) -> None:
    assert wire.app.server is not None
    wire.app.server.draining = True
    answer = await wire.get("/readyz")
    assert (answer.status, answer.json["status"]) == (503, "draining")
    wire.app.server.draining = False


async def test_pops_are_paused_and_resumed(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    path = "/api/v1/pauses"
    assert (await wire.get(path)).ok() == {"pops": False, "pushes": False}
    assert (await wire.post(path, body={"pops": True})).ok() == {"pops": True, "pushes": False}
    try:
        assert (await wire.get(path)).ok() == {"pops": True, "pushes": False}
        assert (await wire.get("/api/v1/pop/queue", queue)).status == 204
        assert (await wire.get("/api/v1/pop/queue", queue, wait="true", timeout=10_000)).status == 204
        await wire.push(queue, 2)
    finally:
        answer = (await wire.post(path, body={"pops": False})).ok()
    assert answer == {"pops": False, "pushes": False}
    assert [message["data"] for message in await wire.pop(queue)] == [1, 2]


async def test_a_poll_that_waits_when_pops_are_paused_ends_empty(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue)
    path = "/api/v1/pauses"
    waiting = asyncio.create_task(wire.get("/api/v1/pop/queue", queue, wait="true", timeout=120_000))
    await until(wire.app.broker._engine.waiters.counts)
    (await wire.post(path, body={"pops": True})).ok()
    try:
        assert (await asyncio.wait_for(waiting, SECONDS_MAX)).status == 204
    finally:
        (await wire.post(path, body={"pops": False})).ok()


async def test_pushes_are_not_paused_without_a_journal(wire: Wire) -> None:
    path = "/api/v1/pauses"
    (await wire.post(path, body={"pushes": True, "pops": True})).refused(409, "not_available")
    assert (await wire.get(path)).ok() == {"pops": False, "pushes": False}
    assert (await wire.post(path, body={"pushes": False})).ok() == {"pops": False, "pushes": False}
    (await wire.post(path, body={"pushes": "yes"})).refused(400)
    (await wire.post(path, body={"enabled": True})).refused(400)


async def test_the_system_tells_of_the_broker_and_its_store(wire: Wire) -> None:
    found = (await wire.get("/api/v1/system")).ok()
    assert (found["broker"]["pid"], found["broker"]["processes"]) == (os.getpid(), 1)
    assert found["broker"]["memoryBytes"] > 0
    assert found["store"]["kind"] in ("sqlite", "postgresql")
    assert found["store"]["answers"] is True
    assert found["settings"] == []
