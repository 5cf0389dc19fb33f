"""Status, analytics and maintenance in the shapes of Queen's dashboard."""

from __future__ import annotations

from typing import Any

from tests.http.test_status import work
from tests.http.wire import Wire


async def test_status_shows_throughput_and_queues(wire: Wire) -> None:
    queue = wire.name()
    await work(wire, queue)
    found = (await wire.get("/api/v1/status")).ok()
    assert found["bucketMinutes"] == 1
    assert sum(point["ingested"] for point in found["throughput"]) == 3
    assert sum(point["processed"] for point in found["throughput"]) == 3
    assert sum(point["ackFailed"] for point in found["throughput"]) == 1
    assert queue in [each["name"] for each in found["queues"]]
    assert found["messages"]["requests"]["push"] == 1
    assert found["messages"]["batchEfficiency"]["push"] == 3
    assert found["leases"]["active"] >= 0
    narrow = (await wire.get("/api/v1/status", queue=queue)).ok()
    assert [each["name"] for each in narrow["queues"]] == [queue]
    assert narrow["messages"]["total"] == 4
    days: dict[str, Any] = {"from": "2026-01-01", "to": "2026-01-05"}
    wide = (await wire.get("/api/v1/status", **days)).ok()
    assert (wide["bucketMinutes"], wide["throughput"]) == (60, [])
    (await wire.get("/api/v1/status", **days | {"from": "2026-01-06"})).refused(400)


async def test_queues_of_the_status_pages(wire: Wire) -> None:
    queue, partition = wire.name(), wire.name("lane")
    await wire.configure(queue, namespace=f"ns {queue}", priority=3)
    await wire.push(queue, 1, 2, partition=partition)
    listed = (await wire.get("/api/v1/status/queues", namespace=f"ns {queue}")).ok()
    assert [each["name"] for each in listed["queues"]] == [queue]
    assert listed["pagination"] == {"limit": 100, "offset": 0}
    shown = (await wire.get("/api/v1/status/queues", queue, includePartitions="true")).ok()
    assert (shown["queue"]["name"], shown["queue"]["priority"]) == (queue, 3)
    assert {each["name"] for each in shown["partitions"]} == {"Default", partition}
    assert shown["totals"]["messages"]["total"] == shown["totals"]["total"] == 2
    assert (await wire.get("/api/v1/status/queues", queue, includePartitions="false")).ok()["partitions"] == []
    messages = (await wire.get("/api/v1/status/queues", queue, "messages", limit=1)).ok()
    assert [(each["queue"], each["partition"], each["status"]) for each in messages] == [(queue, partition, "pending")]


async def test_analytics_serve_what_was_counted(wire: Wire) -> None:
    queue = wire.name()
    await work(wire, queue)
    analytics = (await wire.get("/api/v1/status/analytics", queue=queue, interval="minute")).ok()
    # The push of a transaction is counted where it is stored.
    assert sum(point["messages"] for point in analytics["dataPoints"]) == 4
    ops = (await wire.get("/api/v1/analytics/queue-ops", queue=queue)).ok()
    assert ops["queues"] == [queue]
    assert sum(point["pushMessages"] for point in ops["series"]) == 4
    assert sum(point["popMessages"] for point in ops["series"]) == 3
    assert sum(point["ackFailed"] for point in ops["series"]) == 1
    lag = (await wire.get("/api/v1/analytics/queue-lag", queue=queue)).ok()
    assert sum(point["popCount"] for point in lag) == 1
    workers = (await wire.get("/api/v1/analytics/worker-metrics")).ok()
    assert workers["summary"]["totalPushMessages"] == 3
    system = (await wire.get("/api/v1/analytics/system-metrics")).ok()
    assert system["replicas"][0]["timeSeries"][-1]["metrics"]["memory"]["rss_bytes"]["last"] > 0
    parked = (await wire.get("/api/v1/analytics/queue-parked-replicas")).ok()
    assert parked["replicas"][0]["hostname"]
    assert (await wire.get("/api/v1/analytics/retention", queue=queue)).ok()["totals"]["totalMsgs"] == 0
    report = (await wire.get("/api/v1/analytics/postgres-stats")).ok()
    assert report["kind"] == wire.app.broker._engine.store.kind
    (await wire.get("/api/v1/status/analytics", interval="year")).refused(400)


async def test_pop_maintenance_pauses_pops(wire: Wire) -> None:
    path = "/api/v1/system/maintenance/pop"
    assert (await wire.get(path)).ok()["popMaintenanceMode"] is False
    assert (await wire.post(path, body={"enabled": True})).ok()["popMaintenanceMode"] is True
    try:
        assert (await wire.get("/api/v1/system/maintenance")).ok()["popMaintenanceMode"] is True
        assert (await wire.get("/api/v1/pauses")).ok() == {"pops": True, "pushes": False}
    finally:
        answer = (await wire.post(path, body={"enabled": False})).ok()
    assert answer["popMaintenanceMode"] is False
    assert (await wire.get("/api/v1/pauses")).ok() == {"pops": False, "pushes": False}


async def test_push_maintenance_is_not_available(wire: Wire) -> None:
    path = "/api/v1/system/maintenance"
    shown = (await wire.get(path)).ok()
    assert (shown["maintenanceMode"], shown["bufferedMessages"], shown["bufferHealthy"]) == (False, 0, True)
    (await wire.post(path, body={"enabled": True})).refused(409, "not_available")
    assert (await wire.post(path, body={"enabled": False})).ok()["maintenanceMode"] is False
    (await wire.post(path, body={})).refused(400)
    (await wire.post(path, body={"enabled": "yes"})).refused(400)


async def test_brokers_tell_each_other_nothing_but_hints(wire: Wire) -> None:
    for path in (
        "/api/v1/system/shared-state",
        "/internal/api/shared-state/stats",
        "/internal/api/inter-instance/stats",
    ):
        assert (await wire.get(path)).ok()["enabled"] is False
    assert (await wire.post("/internal/api/notify", body={"queue": wire.name("nobody")})).ok() == {"status": "ok"}
    (await wire.post("/internal/api/notify", body={})).refused(400)
    assert (await wire.post("/api/v1/stats/refresh")).ok()["skipped"] is True


async def test_a_queue_or_parameter_that_is_unknown_is_refused(wire: Wire) -> None:
    nobody = wire.name("nobody")
    for parts in ((nobody,), (nobody, "messages")):
        refused = (await wire.get("/api/v1/status/queues", *parts)).refused(404, "not_found")
        assert refused["error"] == "Queue not found"
    (await wire.get("/api/v1/status", verbose="1")).refused(400)
