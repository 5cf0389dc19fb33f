"""Workers on the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.clock import ManualClock
from tests.conformance.backends import SqliteBackend
from tests.http.wire import Wire, serving
from tests.metrics import sample, samples
from tests.until import until


async def test_a_worker_tells_of_itself_is_listed_and_leaves(wire: Wire) -> None:
    id, app = wire.name("worker"), f"shop-{uuid4().hex}"  # other tests have workers in this database, too
    part = {
        "queue": "orders",
        "group": "billing",
        "concurrency": 8,
        "inHand": 1,
        "handled": 5,
        "failed": 0,
        "meanMs": 2.5,
    }
    body = {"app": app, "hostname": "here", "pid": 7, "queues": [part], "current": ["t-1"]}
    assert (await wire.post("/api/v1/workers", id, body=body)).status == 204
    [found] = [one for one in (await wire.get("/api/v1/workers")).ok()["workers"] if one["id"] == id]
    assert found.pop("seenAt")
    assert found == {"id": id, "lost": False, **body}
    metrics = samples((await wire.get("/metrics")).body)
    labels = {"app": app, "host": "here", "pid": "7", "queue": "orders", "group": "billing"}
    figures = {"concurrency": 8, "messages_in_hand": 1, "messages_total": 5, "messages_failed_total": 0}
    for name, figure in figures.items():
        assert metrics[sample(f"worker_{name}", **labels)] == figure
    assert metrics[sample("workers", app=app)] == 1
    assert (await wire.delete("/api/v1/workers", id)).ok() == {"id": id, "left": True}
    assert (await wire.delete("/api/v1/workers", id)).ok() == {"id": id, "left": False}
    assert id not in [one["id"] for one in (await wire.get("/api/v1/workers")).ok()["workers"]]


async def test_what_no_worker_says_is_refused(wire: Wire) -> None:
    id = wire.name("worker")
    for wrong in ({}, {"app": "a", "hostname": "h", "pid": -1, "queues": []}, {"app": 1}):
        assert (await wire.post("/api/v1/workers", id, body=wrong)).status == 400
    assert id not in [one["id"] for one in (await wire.get("/api/v1/workers")).ok()["workers"]]


def report(app: str, pid: int, queue: str, *, in_hand: int = 0) -> dict[str, Any]:
    part = {"queue": queue, "group": "billing", "concurrency": 8, "inHand": in_hand, "handled": 5, "failed": 0}
    return {"app": app, "hostname": "web-1", "pid": pid, "queues": [part], "current": []}


async def test_a_fleet_that_was_killed_is_listed_as_lost_and_is_one_finding(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(await SqliteBackend(tmp_path / "queue.db").open(clock)) as wire:
        app, queues = wire.name("shop"), [wire.name() for _ in range(3)]
        for queue in queues:
            await wire.push(queue, 1, 2)
            await wire.ack(await wire.pop(queue, consumerGroup="billing", batch=1))
        for pid, queue in enumerate(queues):
            body = report(app, pid, queue, in_hand=2)
            assert (await wire.post("/api/v1/workers", f"{app}-{pid}", body=body)).status == 204

        async def listed() -> tuple[int, list[int]]:
            found = (await wire.get("/api/v1/workers", search=app)).ok()
            return found["total"], sorted(one["pid"] for one in found["lost"] if one["app"] == app)

        async def found(kind: str) -> list[dict[str, Any]]:
            findings = (await wire.get("/api/v1/findings")).ok()["findings"]
            return [one for one in findings if one["kind"] == kind]

        assert await listed() == (3, [])
        clock.advance(36)
        assert await listed() == (0, [0, 1, 2])
        assert not await found("app_lost"), "a deployment may replace them"
        clock.advance(600)
        [one] = await until(lambda: found("app_lost"))
        assert not await found("group_stopped"), "it has one cause"
        assert (one["severity"], one["app"], one["count"], one["page"]) == ("critical", app, 3, "/workers")
        assert "lost its 3 workers" in one["sentence"]
        assert "on 'web-1'" in one["sentence"]
        assert one["sentence"].endswith("They held 6 messages.")
        metrics = samples((await wire.get("/metrics")).body)
        assert metrics[sample("workers_lost", app=app)] == 3
        assert (await wire.post("/api/v1/workers", "new", body=report(app, 9, queues[0]))).status == 204
        assert await listed() == (1, [0, 1, 2]), "those that were replaced are listed for an hour"
        assert not await found("app_lost")
        assert len(await found("group_stopped")) == 3, "now it is something else"
        clock.advance(3600)
        assert (await wire.post("/api/v1/workers", "new", body=report(app, 9, queues[0]))).status == 204
        assert await listed() == (1, [])


async def test_a_worker_that_leaves_is_not_lost(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(await SqliteBackend(tmp_path / "queue.db").open(clock)) as wire:
        app = wire.name("shop")
        assert (await wire.post("/api/v1/workers", app, body=report(app, 1, "q"))).status == 204
        (await wire.delete("/api/v1/workers", app)).ok()
        clock.advance(300)
        assert app not in [one["app"] for one in (await wire.get("/api/v1/workers")).ok()["lost"]]
