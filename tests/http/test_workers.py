"""Workers on the wire."""

from __future__ import annotations

from uuid import uuid4

from tests.http.wire import Wire
from tests.metrics import sample, samples


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
    assert found == {"id": id, **body}
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
