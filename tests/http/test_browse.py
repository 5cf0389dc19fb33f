"""Browsing over HTTP: single messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from fairlane.broker import browse
from fairlane.store.contract.browse import StoredHead
from tests.http.wire import Wire
from tests.queen_package import INSTALLED
from tests.until import SECONDS_MAX, until


async def listed(wire: Wire, **query: Any) -> list[Any]:
    found: list[Any] = (await wire.get("/api/v1/messages", **query)).ok()["messages"]
    return found


async def test_messages_are_listed_newest_first_without_payload(wire: Wire) -> None:
    queue, partition = wire.name(), wire.name("lane")
    trace = "0198a3f0-0000-7000-8000-000000000001"
    [first] = await wire.push(queue, {"n": 1}, ids=["one"], partition=partition, traceId=trace)
    await wire.push(queue, 2, ids=["two"], partition="other")
    two, one = await listed(wire, queue=queue)
    assert (one["transactionId"], two["transactionId"]) == ("one", "two")
    assert (one["id"], one["partitionId"]) == (first["message_id"], first["partition_id"])
    assert (one["queue"], one["partition"], one["queuePath"]) == (queue, partition, f"{queue}/{partition}")
    assert (one["traceId"], two["traceId"]) == (trace, None)
    assert (one["status"], one["position"]) == ("pending", 0)
    assert "payload" not in one
    assert "data" not in one
    assert [each["transactionId"] for each in await listed(wire, queue=queue, partition=partition)] == ["one"]
    assert [each["transactionId"] for each in await listed(wire, traceId=trace, queue=queue)] == ["one"]
    assert [each["transactionId"] for each in await listed(wire, queue=queue, transactionId="two")] == ["two"]
    assert await listed(wire, queue=wire.name("nobody")) == []


async def test_pages_meet_without_a_gap_or_a_repeat(wire: Wire) -> None:
    queue = wire.name()
    pushed = []
    for step in range(5):
        for partition in ("a", "b", "c"):
            answers = await wire.push(queue, *range(4), partition=partition)
            pushed += [answer["message_id"] for answer in answers]
        if step % 2:
            await asyncio.sleep(0.001)
    whole = [each["id"] for each in await listed(wire, queue=queue, limit=1000)]
    assert sorted(whole) == sorted(pushed)
    times = [each["createdAt"] for each in await listed(wire, queue=queue, limit=1000)]
    assert times == sorted(times, reverse=True)
    paged: list[str] = []
    before: str | None = None
    while True:
        more: dict[str, Any] = {"before": before} if before else {}
        page = (await wire.get("/api/v1/messages", queue=queue, limit=7, **more)).ok()
        paged += [each["id"] for each in page["messages"]]
        before = page["next"]
        if before is None:
            break
    assert paged == whole
    by_offset = [each["id"] for each in await listed(wire, queue=queue, limit=10, offset=25)]
    assert by_offset == whole[25:35]
    assert await listed(wire, queue=queue, limit=10, offset=1000) == []


async def test_pages_of_uneven_lanes_are_in_order(wire: Wire) -> None:
    """Some lanes hold many messages and others few. Some messages are deleted."""
    queue = wire.name()
    for step in range(6):
        for lane in range(30):
            if lane < 2 or (lane + step) % 7 == 0:
                await wire.push(queue, *range(40 if lane < 2 else 1 + step), partition=str(lane))
    first = await listed(wire, queue=queue, limit=1000)
    for one in first[3::10]:
        await wire.delete(f"/api/v1/messages/{one['partitionId']}/{one['transactionId']}")
    whole = [one for index, one in enumerate(first) if index % 10 != 3]
    for limit in (1, 23, 400):
        paged: list[Any] = []
        where: dict[str, Any] = {"queue": queue, "limit": limit}
        while len(paged) < 3 * limit + 100:
            page = (await wire.get("/api/v1/messages", **where)).ok()
            paged += page["messages"]
            if page["next"] is None:
                break
            where["before"] = page["next"]
        assert [one["id"] for one in paged] == [one["id"] for one in whole[: len(paged)]]
    for offset in (5, 100, len(whole) - 3):
        found = await listed(wire, queue=queue, limit=50, offset=offset)
        assert [one["id"] for one in found] == [one["id"] for one in whole[offset : offset + 50]]


async def test_a_page_reads_no_message_twice_and_no_more_than_its_bound(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound also holds if the filter matches nothing and the messages are spread over many lanes."""
    monkeypatch.setattr(browse, "SCAN_MAX", 1_000)
    queue, lanes, each = wire.name(), 60, 40
    for start in range(0, lanes, 20):
        items = [
            {"queue": queue, "partition": str(lane), "payload": 1}
            for _ in range(each)
            for lane in range(start, start + 20)
        ]
        (await wire.post("/api/v1/push", body={"items": items})).ok(201)
    store, read = wire.app.broker._engine.store.browse, Counter[Any]()
    real = store.newest

    async def newest(*arguments: Any, **options: Any) -> list[StoredHead]:
        heads = await real(*arguments, **options)
        read.update(head.at for head in heads)
        return heads

    monkeypatch.setattr(store, "newest", newest)
    where: dict[str, Any] = {"queue": queue, "status": "dead_letter", "limit": 200}
    pages = 0
    for more in ({}, {"offset": 10_000}):
        before: str | None = None
        while True:
            read.clear()
            page = (
                await wire.get("/api/v1/messages", **where, **(more if before is None else {"before": before}))
            ).ok()
            assert page["messages"] == []
            assert max(read.values(), default=1) == 1
            assert read.total() <= 2 * 1_000
            before, pages = page["next"], pages + 1
            if before is None:
                break
    assert pages < 20, "each page got on"


async def test_a_long_page_is_made_in_steps(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests are served between the steps."""
    queue, steps = wire.name(), []
    for _ in range(3):
        await wire.push(queue, *range(1_000))
    real = browse.Browse._with_status

    async def with_status(self: browse.Browse, queues: Any, some: list[Any], groups: Any) -> list[Any]:
        steps.append(len(some))
        return await real(self, queues, some, groups)

    monkeypatch.setattr(browse.Browse, "_with_status", with_status)
    assert len(await listed(wire, queue=queue, limit=10_000)) == 3_000
    if INSTALLED:
        assert len((await wire.get("/api/v1/status/queues", queue, "messages", limit=10_000)).ok()) == 3_000
    assert max(steps) <= 1_000


async def test_messages_are_found_by_status(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0)
    await wire.push(queue, 1, 2, 3, 4, ids=["dead", "done", "held", "waiting"])
    await wire.ack(await wire.pop(queue, batch=1), "failed", error="no")
    await wire.ack(await wire.pop(queue, batch=1))
    await wire.pop(queue, batch=1)
    by_status = {each["transactionId"]: each["status"] for each in await listed(wire, queue=queue)}
    assert by_status == {"dead": "dead_letter", "done": "completed", "held": "processing", "waiting": "pending"}
    for name, status in by_status.items():
        assert [each["transactionId"] for each in await listed(wire, queue=queue, status=status)] == [name]
    answer = (await wire.get("/api/v1/messages", queue=queue)).ok()
    assert answer["mode"] == {"hasQueueMode": True, "busGroupsCount": 0, "type": "queue"}
    [held] = await listed(wire, queue=queue, status="processing")
    assert held["leaseExpiresAt"].endswith("Z")
    (await wire.get("/api/v1/messages", status="lost")).refused(400)


async def test_a_message_that_was_finished_before_others_is_shown_so(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, 2, 3, ids=["first", "ahead", "last"])
    await wire.ack((await wire.pop(queue))[1:2])
    by_status = {each["transactionId"]: each["status"] for each in await listed(wire, queue=queue)}
    assert by_status == {"first": "processing", "ahead": "completed", "last": "processing"}


async def test_messages_are_found_by_time_namespace_and_task(wire: Wire) -> None:
    queue, namespace = wire.name(), wire.name("namespace")
    await wire.configure(queue, namespace=namespace, task="t")
    await wire.push(queue, 1)
    assert len(await listed(wire, ns=namespace)) == 1
    assert len(await listed(wire, ns=namespace, task="t")) == 1
    assert await listed(wire, ns=namespace, task="other") == []
    assert await listed(wire, queue=queue, to="2001-01-01T00:00:00Z") == []
    assert await listed(wire, queue=queue, **{"from": "2199-01-01T00:00:00+01:00"}) == []
    assert len(await listed(wire, queue=queue, **{"from": "2001-01-01"})) == 1
    (await wire.get("/api/v1/messages", to="yesterday")).refused(400)
    (await wire.get("/api/v1/messages", before="x")).refused(400)
    (await wire.get("/api/v1/messages", traceId="x")).refused(400)


async def test_a_message_is_shown_whole_with_every_group(wire: Wire) -> None:
    queue, partition, group = wire.name(), wire.name("lane"), wire.name("group")
    id = f"id {wire.name()}"[:250]
    await wire.configure(queue, leaseTime=9, retryLimit=5)
    [pushed] = await wire.push(queue, {"b": 1, "a": [None]}, ids=[id], partition=partition)
    await wire.pop(queue, autoAck="true", consumerGroup=group)
    [held] = await wire.pop(queue)
    found = (await wire.get("/api/v1/messages", held["partitionId"], id)).ok()
    assert (found["id"], found["transactionId"], found["queue"], found["partition"]) == (
        pushed["message_id"],
        id,
        queue,
        partition,
    )
    assert found["payload"] == {"b": 1, "a": [None]}
    assert found["queueConfig"] == {"leaseTime": 9, "retryLimit": 5, "retryDelay": 0, "ttl": 0, "priority": 0}
    views = {each["name"]: each for each in found["consumerGroups"]}
    seen = {"consumed": True, "leaseExpiresAt": None, "cancelled": False, "progress": None}
    assert views[group] == {"name": group, **seen}
    assert views["__QUEUE_MODE__"]["consumed"] is False
    assert views["__QUEUE_MODE__"]["leaseExpiresAt"] == found["leaseExpiresAt"] is not None
    assert found["status"] == "processing"
    assert found["mode"] == {
        "hasQueueMode": True,
        "busGroupsCount": 1,
        "type": "hybrid",
        "consumedByGroups": 1,
    }


async def test_a_failed_message_tells_its_error_and_attempts(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=1)
    await wire.push(queue, 1, ids=["x"])
    for error in ("first", "second"):
        [message] = await wire.pop(queue)
        await wire.ack([message], "failed", error=error)
        found = (await wire.get("/api/v1/messages", message["partitionId"], "x")).ok()
        assert found["errorMessage"] == error
    assert (found["retryCount"], found["status"]) == (2, "dead_letter")


async def test_a_deleted_message_is_gone_for_everybody(wire: Wire) -> None:
    queue = wire.name()
    id = f"id {queue}"[:250]
    pushed = await wire.push(queue, 1, 2, 3, ids=["a", id, "c"])
    message = (pushed[1]["partition_id"], id)
    deleted = (await wire.delete("/api/v1/messages", *message)).ok()
    assert deleted["success"] is True
    assert deleted["message"] == "Message deleted successfully"
    assert (await wire.delete("/api/v1/messages", *message)).refused(404, "not_found")["error"] == "Message not found"
    (await wire.get("/api/v1/messages", *message)).refused(404, "not_found")
    seen = []
    while messages := await wire.pop(queue):
        seen += [message["data"] for message in messages]
        await wire.ack(messages)
    assert seen == [1, 3]


async def test_deleting_the_message_a_lane_sleeps_for_wakes_a_waiting_poll(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryDelay=600_000)
    await wire.push(queue, 1, 2, ids=["a", "b"])
    [message] = await wire.pop(queue, batch=1)
    await wire.ack([message], "failed", error="no")
    waiting = asyncio.create_task(wire.pop(queue, wait="true", timeout=120_000))
    await until(wire.app.broker._engine.waiters.counts)
    (await wire.delete("/api/v1/messages", message["partitionId"], "a")).ok()
    [next_one] = await asyncio.wait_for(waiting, SECONDS_MAX)
    assert next_one["data"] == 2


async def test_a_dead_message_is_retried_once(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0)
    [pushed] = await wire.push(queue, {"n": 1}, ids=["x"])
    await wire.ack(await wire.pop(queue), "failed", error="no")
    retried = (await wire.post("/api/v1/messages", pushed["partition_id"], "x", "retry")).ok()
    assert retried["success"] is True
    [again] = await wire.pop(queue)
    assert (again["id"], again["data"], again["headers"]) == (retried["messageId"], {"n": 1}, {"replay-of": "x"})
    (await wire.post("/api/v1/messages", pushed["partition_id"], "x", "retry")).refused(409, "conflict")


async def test_a_finished_message_is_pushed_again_and_a_waiting_one_is_not(wire: Wire) -> None:
    queue, partition = wire.name(), wire.name("lane")
    [pushed] = await wire.push(queue, {"n": 1}, ids=["x"], partition=partition)
    message = (pushed["partition_id"], "x", "retry")
    (await wire.post("/api/v1/messages", *message)).refused(409, "conflict")
    await wire.ack(await wire.pop(queue))
    retried = (await wire.post("/api/v1/messages", *message, body=b"")).ok()
    [again] = await wire.pop(queue)
    assert (again["id"], again["data"], again["partition"]) == (retried["messageId"], {"n": 1}, partition)
    (await wire.post("/api/v1/messages", pushed["partition_id"], "nobody", "retry")).refused(404)


async def test_a_message_is_moved_to_the_dead_letters_of_a_group(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    pushed = await wire.push(queue, 1, 2, 3, ids=["a", "b", "c"])
    message = (pushed[1]["partition_id"], "b", "dlq")
    (await wire.post("/api/v1/messages", *message)).refused(409, "conflict")
    await wire.ack(await wire.pop(queue, consumerGroup=group, batch=1))
    await wire.ack(await wire.pop(queue, batch=1))
    body = {"consumerGroup": group, "error": "not wanted"}
    moved = (await wire.post("/api/v1/messages", *message, body=body)).ok()
    assert moved["consumerGroups"] == [group]
    letters = (await wire.get("/api/v1/dlq", queue=queue)).ok()
    [letter] = letters["messages"]
    assert (letter["consumerGroup"], letter["errorMessage"], letter["data"]) == (group, "not wanted", 2)
    assert [message["data"] for message in await wire.pop(queue, consumerGroup=group)] == [3]
    assert [message["data"] for message in await wire.pop(queue)] == [2, 3]
    rest = (await wire.post("/api/v1/messages", *message)).ok()
    assert rest["consumerGroups"] == ["__QUEUE_MODE__"]
    (await wire.post("/api/v1/messages", *message)).refused(409, "conflict")
    (await wire.post("/api/v1/messages", *message, body={"consumerGroup": "nobody"})).refused(404)


async def test_an_address_that_names_nothing_is_a_404(wire: Wire) -> None:
    for partition in ("x", "0-999999999999", "0-0", "-1", "99999999999999999999-1"):
        for method, *rest in (("GET",), ("DELETE",), ("POST", "retry"), ("POST", "dlq"), ("POST", "cancel")):
            (await wire.ask(method, "/api/v1/messages", partition, "some id", *rest)).refused(404, "not_found")


async def test_progress_at_a_position_that_no_message_can_have_is_refused(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 0)
    [message] = await wire.pop(queue)
    item = {"leaseId": message["leaseId"], "partitionId": message["partitionId"], "position": 2**63, "fraction": 0.5}
    refused = await wire.post("/api/v1/leases/progress", body={"items": [item]})
    assert "position" in refused.refused(400, "invalid_request")["error"]
