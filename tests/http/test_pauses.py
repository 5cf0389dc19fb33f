"""Pauses and explanations on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.wire import Wire


async def test_a_queue_is_paused_seen_and_resumed(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    assert (await wire.post("/api/v1/queues", queue, "pause")).ok()["paused"] is True
    assert (await wire.get("/api/v1/queues", queue, "pauses")).ok()["pausedAt"] is not None
    assert await wire.pop(queue) == []
    assert (await wire.post("/api/v1/queues", queue, "resume")).ok()["resumed"] == 1
    assert (await wire.post("/api/v1/queues", queue, "resume")).ok()["resumed"] == 0
    assert len(await wire.pop(queue)) == 1


async def test_a_lane_is_explained_as_a_sentence_and_as_data(wire: Wire) -> None:
    queue, partition = wire.name(), wire.name("lane")
    await wire.push(queue, 1, partition=partition)
    await wire.pop(queue)
    answer = (await wire.get("/api/v1/explain", queue, partition)).ok()
    assert (answer["reason"], answer["leased"], answer["attemptsMax"]) == ("leased", 1, 4)
    assert answer["until"] == answer["leaseEndsAt"]
    assert answer["until"][:19].replace("T", " ") + " UTC" in answer["sentence"]
    for names in ((queue, "other"), (wire.name(), partition)):
        (await wire.get("/api/v1/explain", *names)).refused(404, "not_found")
    (await wire.get("/api/v1/explain", queue, partition, group="nobody")).refused(404, "not_found")


async def test_lanes_are_resumed_by_group_and_not_by_partition_at_once(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    await wire.pop(queue)
    lanes = {"lanes": True, "group": "__QUEUE_MODE__"}
    assert (await wire.post("/api/v1/queues", queue, "resume", body=lanes)).ok()["resumed"] == 0
    both = {"lanes": True, "partition": "Default"}
    (await wire.post("/api/v1/queues", queue, "resume", body=both)).refused(400, "invalid_request")


async def stop_lanes(wire: Wire, queue: str, count: int, policy: str = "block") -> None:
    """Let the first of two messages stop each of `count` lanes. Another lane is well."""
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted=policy)
    await wire.push(queue, 0, partition="well")
    for number in range(count):
        await wire.push(queue, "poison", "good", partition=f"lane {number}")
        taken = await wire.pop(queue, partition=f"lane {number}", batch=1)
        await wire.ack(taken, status="failed", error="no such card")


async def data(wire: Wire, queue: str) -> list[Any]:
    found: list[Any] = []
    while taken := await wire.pop(queue, batch=10):
        found += [one["data"] for one in taken]
        await wire.ack(taken)
    return found


@pytest.mark.parametrize("policy", ["block", "park"])
async def test_the_messages_that_stop_lanes_are_skipped_and_nothing_else(wire: Wire, policy: str) -> None:
    queue = wire.name()
    await stop_lanes(wire, queue, 3, policy)
    body = {"lanes": True, "skip": True}
    answer = (await wire.post("/api/v1/queues", queue, "resume", body=body)).ok()
    assert answer["skipped"] == 3
    assert sorted(await data(wire, queue), key=str) == [0, "good", "good", "good"]
    letters = (await wire.get("/api/v1/dlq", queue=queue)).ok()["messages"]
    assert [one["data"] for one in letters] == ["poison"] * 3
    assert (await wire.post("/api/v1/queues", queue, "resume", body=body)).ok()["skipped"] == 0


async def test_the_message_of_one_lane_is_skipped(wire: Wire) -> None:
    queue = wire.name()
    await stop_lanes(wire, queue, 2)
    body = {"partition": "lane 1", "skip": True}
    assert (await wire.post("/api/v1/queues", queue, "resume", body=body)).ok()["skipped"] == 1
    assert sorted(await data(wire, queue), key=str) == [0, "good"]
    (await wire.post("/api/v1/queues", queue, "resume", body={"skip": True})).refused(400, "invalid_request")


async def test_lanes_that_an_operator_parked_lose_no_message(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    await wire.ack(await wire.pop(queue))
    (await wire.post("/api/v1/queues", queue, "pause", body={"group": "__QUEUE_MODE__", "partition": "Default"})).ok()
    await wire.push(queue, 2)
    body = {"lanes": True, "skip": True}
    assert (await wire.post("/api/v1/queues", queue, "resume", body=body)).ok()["skipped"] == 0
    assert await data(wire, queue) == [2]


async def test_an_explanation_names_the_message_that_failed(wire: Wire) -> None:
    queue = wire.name()
    await stop_lanes(wire, queue, 1)
    found = (await wire.get("/api/v1/explain", queue, "lane 0")).ok()
    message = (await wire.get("/api/v1/messages", found["partitionId"], found["transactionId"])).ok()
    assert (message["payload"], found["reason"]) == ("poison", "blocked")


async def test_stopped_lanes_are_found_among_many(wire: Wire) -> None:
    queue = wire.name()
    await stop_lanes(wire, queue, 3)
    found = (await wire.get("/api/v1/queues", queue, "lanes", state="blocked")).ok()
    assert [one["partition"] for one in found["lanes"]] == ["lane 0", "lane 1", "lane 2"]
    assert (found["next"], found["complete"]) == (None, True)
    assert (await wire.get("/api/v1/queues", queue, "lanes", state="parked")).ok()["lanes"] == []
    page = (await wire.get("/api/v1/queues", queue, "lanes", state="blocked", limit=2)).ok()
    rest = (await wire.get("/api/v1/queues", queue, "lanes", state="blocked", limit=2, after=page["next"])).ok()
    assert [one["partition"] for one in page["lanes"] + rest["lanes"]] == ["lane 0", "lane 1", "lane 2"]
