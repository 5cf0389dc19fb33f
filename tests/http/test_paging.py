"""Lists that can grow: searched, sorted and paged by the broker, complete if no page is requested."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import filled
from tests.http.wire import Wire


async def page(wire: Wire, path: str, **query: Any) -> Any:
    return (await wire.get(path, **query)).ok()


async def test_schedules_are_searched_sorted_and_paged(wire: Wire) -> None:
    mark = wire.name("s")
    for n, (cron, queue) in enumerate([("0 5 * * *", "Zebra"), ("0 4 * * *", "apple"), ("0 6 * * *", "apple")]):
        body = {"queue": f"{mark}-{queue}", "cron": cron, "timezone": "UTC"}
        (await wire.post("/api/v1/schedules", f"{mark}-{n}", body=body)).ok()
    (await wire.post("/api/v1/schedules", f"{mark}-0", "pause")).ok()

    async def names(**query: Any) -> list[str]:
        found = await page(wire, "/api/v1/schedules", search=mark, **query)
        assert found["total"] == 3
        return [one["name"].removeprefix(f"{mark}-") for one in found["schedules"]]

    assert await names() == ["0", "1", "2"]
    assert await names(order="desc", limit=2) == ["2", "1"]
    assert await names(limit=2, offset=2) == ["2"]
    assert await names(sort="queue") == ["0", "1", "2"]
    assert (await names(sort="next"))[-1] == "0", "one that is paused has no next tick"
    assert (await page(wire, "/api/v1/schedules", search=f"{mark.upper()}-APPLE"))["total"] == 2, "in whatever case"
    assert len((await page(wire, "/api/v1/schedules"))["schedules"]) >= 3
    (await wire.get("/api/v1/schedules", sort="colour")).refused(400)


async def test_sources_are_searched_sorted_and_paged(wire: Wire) -> None:
    mark = wire.name("crm")
    for n, records in enumerate((2, 5, 0)):
        token = (await wire.post("/api/v1/sources", f"{mark}-{n}", "lease", body={"seconds": 60})).ok()["token"]
        some = [{"key": str(key), "hash": "h", "data": {}} for key in range(records)]
        commit = {"token": token, "before": "", "revision": "r1", "queue": wire.name(), "cursor": "c", "records": some}
        (await wire.post("/api/v1/sources", f"{mark}-{n}", "commit", body=commit)).ok()
    found = await page(wire, "/api/v1/sources", search=mark, sort="records", limit=2)
    assert ([one["records"] for one in found["sources"]], found["total"]) == ([5, 2], 3)
    found = await page(wire, "/api/v1/sources", search=mark.upper(), limit=2, offset=2)
    assert [one["name"] for one in found["sources"]] == [f"{mark}-2"]


async def test_workers_are_paged_with_the_numbers_of_all(wire: Wire) -> None:
    await filled.workers(wire)
    found = await page(wire, "/api/v1/workers", limit=1, sort="host", order="desc")
    assert [one["hostname"] for one in found["workers"]] == ["worker-2"]
    assert (found["total"], found["machines"], found["inHand"], found["concurrency"]) == (2, 2, 10, 24)
    assert (found["handled"], found["failed"]) == (2560, 28)
    assert (await page(wire, "/api/v1/workers", search="PAYMENTS"))["total"] == 2
    assert (await page(wire, "/api/v1/workers", search="worker-1"))["total"] == 1


async def test_webhooks_and_specs_are_paged(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in filled.SECRETS.items():
        monkeypatch.setenv(name, secret)
    await filled.specs(wire)
    hooks = await page(wire, "/api/v1/hooks", limit=1)
    assert len(hooks["hooks"]) == 1 <= hooks["total"]
    assert (hooks["delivered"], hooks["refused"]) == (0, 0)
    assert (await page(wire, "/api/v1/hooks", search="there is none"))["hooks"] == []
    specs = await page(wire, "/api/v1/spec", limit=1, sort="applied")
    assert len(specs["specs"]) == 1 <= specs["total"]
    assert (await page(wire, "/api/v1/spec", search="there is none"))["total"] == 0


async def test_groups_are_paged_with_the_numbers_of_all(wire: Wire) -> None:
    mark = wire.name("shop")
    for n in range(4):
        await wire.push(f"{mark}-{n}", *range(n + 1), partition="p")
        await wire.pop(f"{mark}-{n}", consumerGroup="Billing", batch=1)
    await wire.pop(f"{mark}-3", consumerGroup="audit", batch=1)
    found = await page(wire, "/api/v1/resources/groups", search=mark, limit=3)
    assert [one["totalLag"] for one in found["groups"]] == [4, 4, 3], "most to read first"
    assert (found["total"], found["statsAge"]) == (5, 0)
    assert found["lagging"] >= 5
    assert found["toRead"] >= 14
    assert found["oldestSeconds"] > 0
    by_name = await page(wire, "/api/v1/resources/groups", queue=f"{mark}-3", sort="name", search="bil")
    assert [one["name"] for one in by_name["groups"]] == ["Billing"]
    one = (await wire.get("/api/v1/consumer-groups", "Billing", "queues", f"{mark}-1")).ok()
    assert (one["name"], one["queueName"], one["totalLag"]) == ("Billing", f"{mark}-1", 2)
    (await wire.get("/api/v1/consumer-groups", "nobody", "queues", f"{mark}-1")).refused(404)
    lanes = (await wire.get("/api/v1/consumer-groups", "Billing")).ok()
    assert {f"{mark}-{n}" for n in range(4)} <= lanes.keys()


async def test_queues_are_sorted_by_each_of_their_columns(wire: Wire) -> None:
    mark = wire.name("Sorted")
    for n in range(3):
        await wire.push(f"{mark}-{n}", *range(n + 1))
    for sort in ("name", "created", "pending", "oldest", "rate", "deadLetters"):
        found = await page(wire, "/api/v1/resources/queues", search=mark.lower(), sort=sort, limit=2)
        assert (len(found["queues"]), found["total"], found["statsAge"]) == (2, 3, 0), sort


async def test_queues_in_trouble_come_first(wire: Wire) -> None:
    mark = wire.name("trouble")
    for name, options in (("stopped", {"retryLimit": 0, "onExhausted": "block"}), ("dead", {"retryLimit": 0})):
        await wire.configure(f"{mark}-{name}", **options)
        await wire.push(f"{mark}-{name}", 1)
        await wire.ack(await wire.pop(f"{mark}-{name}"), "failed", error="no such card")
    await wire.push(f"{mark}-unread", 1)
    await wire.push(f"{mark}-calm", 1)
    await wire.ack(await wire.pop(f"{mark}-calm"))
    found = await page(wire, "/api/v1/resources/queues", search=mark, sort="trouble")
    names = [one["name"].removeprefix(f"{mark}-") for one in found["queues"]]
    assert names == ["stopped", "unread", "dead", "calm"]
    [use] = (await wire.get("/api/v1/queues", f"{mark}-stopped", "utilisation")).ok()["groups"]
    assert (use["blocked"], use["parked"], use["paused"], use["retrying"]) == (1, 0, 0, 0)
