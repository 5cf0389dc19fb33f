"""Conflation over HTTP: every answer reports whether it was applied."""

from __future__ import annotations

from typing import Any

from tests.http.wire import Wire


async def test_every_answer_to_a_conflating_pop_says_so(wire: Wire) -> None:
    queue = wire.name()
    empty = await wire.get("/api/v1/pop", "queue", queue, consumerGroup="latest", conflation="true")
    assert (empty.status, empty.ok()["messages"], empty.ok()["conflation"]) == (200, [], True)
    await wire.push(queue, 1, 2, 3)
    full = (await wire.get("/api/v1/pop", "queue", queue, consumerGroup="latest", conflation="true", batch=10)).ok()
    assert ([message["data"] for message in full["messages"]], full["conflation"]) == ([3], True)
    assert "conflationConflict" not in full
    await wire.ack(full["messages"])
    assert (await wire.get("/api/v1/pop", "queue", queue, consumerGroup="latest")).status == 204
    depth = (await wire.get("/api/v1/resources/queues", queue, "depth", group="latest")).ok()
    assert (depth["conflation"], depth["pending"], depth["effectivePending"]) == (True, 0, 0)


async def test_the_depth_of_a_conflating_group_is_what_it_will_get(wire: Wire) -> None:
    queue = wire.name()
    await wire.get("/api/v1/pop", "queue", queue, consumerGroup="latest", conflation="true")
    await wire.push(queue, 1, 2, 3)
    await wire.push(queue, 4, 5, partition="other")
    depth = (await wire.get("/api/v1/resources/queues", queue, "depth", group="latest")).ok()
    assert (depth["pending"], depth["effectivePending"]) == (5, 2)


async def test_the_groups_first_decision_wins_and_both_sides_are_told(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, 2)
    assert (await wire.get("/api/v1/pop", "queue", queue, consumerGroup="plain")).status == 200
    empty = (await wire.get("/api/v1/pop", "queue", queue, consumerGroup="plain", conflation="true")).ok()
    assert (empty["messages"], empty["conflationConflict"], "conflation" in empty) == ([], True, False)
    assert (await wire.get("/api/v1/pop", "queue", queue, consumerGroup="latest", conflation="true")).status == 200
    await wire.push(queue, 3, 4, partition="other")
    told = (await wire.get("/api/v1/pop", "queue", queue, consumerGroup="latest", batch=10)).ok()
    assert [message["data"] for message in told["messages"]] == [4]
    assert (told["conflation"], told["conflationConflict"]) == (True, True)


async def test_conflation_without_a_group_or_with_auto_ack_is_refused(wire: Wire) -> None:
    queue = wire.name()
    queries: list[dict[str, Any]] = [{}, {"consumerGroup": "g", "autoAck": "true"}]
    for query in queries:
        answer = await wire.get("/api/v1/pop", "queue", queue, conflation="true", **query)
        assert "conflation" in answer.refused(400)["error"]


async def test_conflation_on_an_unordered_queue_is_refused(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, ordering="unordered")
    await wire.push(queue, 1)
    answer = await wire.get("/api/v1/pop", "queue", queue, consumerGroup="latest", conflation="true")
    assert "unordered" in answer.refused(400)["error"]
    assert (await wire.get("/api/v1/pop", "queue", queue, consumerGroup="latest")).status == 200, "no group was begun"


async def test_a_pop_that_left_its_size_to_the_broker_is_told_it(wire: Wire) -> None:
    queue = wire.name()
    for partition in ("a", "b"):
        await wire.push(queue, 1, 2, partition=partition)
    answer = (await wire.get("/api/v1/pop", "queue", queue, autopilot="true", batch=3)).ok()
    assert answer["autopilot"] == {"partitions": 10, "batch": 3}
    assert len(answer["messages"]) == 3
