"""Pauses and explanations on the wire."""

from __future__ import annotations

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
