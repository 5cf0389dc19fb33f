"""What is worth acting on: found, told in a sentence, and mended by the action that is told with it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from fairlane.broker import findings
from tests.http.events import listening
from tests.http.wire import Wire
from tests.until import until

PATH = "/api/v1/findings"


async def found(wire: Wire, kind: str, **match: Any) -> list[dict[str, Any]]:
    answer = (await wire.get(PATH)).ok()
    severities = [("critical", "warning", "notice").index(one["severity"]) for one in answer["findings"]]
    assert severities == sorted(severities)
    assert all(one["sentence"].endswith(".") for one in answer["findings"])
    return [one for one in answer["findings"] if one["kind"] == kind and match.items() <= one.items()]


async def use_up(wire: Wire, queue: str) -> None:
    while taken := await wire.pop(queue):
        await wire.ack(taken, "failed", error="the card was refused")


async def test_a_broker_that_is_well_has_nothing_to_tell(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    assert not [one for one in (await wire.get(PATH)).ok()["findings"] if one["queue"] == queue]


async def test_a_lane_that_is_blocked_is_told_of_and_its_action_resumes_it(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="block")
    await wire.push(queue, 1, 2, partition="customer 7")
    await use_up(wire, queue)
    [one] = await found(wire, "lanes_stopped", queue=queue)
    assert (one["severity"], one["partition"], one["count"]) == ("critical", "customer 7", 1)
    assert "the card was refused" in one["sentence"]
    assert one["page"].startswith(f"/queues/{quote(queue, safe='')}/partitions/customer%207?group=")
    action = one["action"]
    answer = await wire.ask(action["method"], action["path"], body=action["body"])
    assert answer.ok()["resumed"] == 1
    assert not await found(wire, "lanes_stopped", queue=queue)


async def test_many_lanes_of_a_group_are_one_finding(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="park")
    for number in range(3):
        await wire.push(queue, 1, partition=f"p{number}")
    await use_up(wire, queue)
    [one] = await found(wire, "lanes_stopped", queue=queue)
    assert (one["count"], one["partition"]) == (3, None)
    action = one["action"]
    assert (await wire.ask(action["method"], action["path"], body=action["body"])).ok()["resumed"] == 3


async def test_dead_letters_that_grow_are_told_of_with_their_error(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0)
    await wire.push(queue, 1, 2, 3)
    await use_up(wire, queue)
    [one] = await until(lambda: found(wire, "dead_letters_growing", queue=queue))
    assert "the card was refused" in one["sentence"]
    assert one["count"] == 3
    await wire.delete("/api/v1/dlq", queue=queue)


async def test_a_group_that_nobody_reads_for_is_told_of(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_UNREAD_SECONDS", 0)
    queue = wire.name()
    await wire.push(queue, 1, 2)
    taken = await wire.pop(queue, consumerGroup="billing", batch=1)
    assert not await found(wire, "group_stopped", queue=queue), "somebody has a message in hand"
    (await wire.post("/api/v1/lease", taken[0]["leaseId"], "release", body={})).ok()
    [one] = await until(lambda: found(wire, "group_stopped", queue=queue))
    assert (one["group"], one["count"]) == ("billing", 2)


async def test_findings_can_be_watched(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="block")
    async with listening(wire, PATH) as events:
        await events.until(PATH, bool)
        await wire.push(queue, 1)
        await use_up(wire, queue)
        await events.until(PATH, lambda body: [one for one in body["findings"] if one["queue"] == queue])
