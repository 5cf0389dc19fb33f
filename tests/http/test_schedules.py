"""Schedules on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.wire import Wire


async def test_a_schedule_is_defined_shown_paused_resumed_run_and_deleted(wire: Wire) -> None:
    name, queue = wire.name("schedule"), wire.name()
    body = {"queue": queue, "cron": "0 9 * * MON", "timezone": "Europe/Rome", "data": {"report": 1}, "missed": "skip"}
    made = (await wire.post("/api/v1/schedules", name, body=body)).ok()
    assert {key: made[key] for key in body} == body
    assert (len(made["nextRuns"]), made["nextRuns"][0], made["pausedAt"]) == (5, made["nextAt"], None)
    assert (await wire.post("/api/v1/schedules", name, body=body)).ok() == made
    assert (await wire.get("/api/v1/schedules", name)).ok() == made
    assert made in (await wire.get("/api/v1/schedules")).ok()["schedules"]

    paused = (await wire.post("/api/v1/schedules", name, "pause")).ok()
    assert (paused["nextAt"], paused["nextRuns"]) == (None, [])
    assert paused["pausedAt"] is not None
    assert (await wire.post("/api/v1/schedules", name, "resume")).ok()["nextAt"] == made["nextAt"]

    run = (await wire.post("/api/v1/schedules", name, "run")).ok()
    [message] = await wire.pop(queue)
    assert (message["data"], message["transactionId"]) == ({"report": 1}, run["transactionId"])
    assert message["headers"]["schedule"] == name

    assert (await wire.delete("/api/v1/schedules", name)).ok()["deleted"] is True
    assert (await wire.delete("/api/v1/schedules", name)).ok()["deleted"] is False
    for verb in ((), ("pause",), ("resume",), ("run",)):
        method = wire.post if verb else wire.get
        assert (await method("/api/v1/schedules", name, *verb)).status == 404


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cron": "never"}, "cron is"),
        ({"cron": "* * * * *", "timezone": "Nowhere/Else"}, "no time zone"),
        ({"everySeconds": 0}, "everySeconds is 0"),
        ({"everySeconds": 5, "cron": "* * * * *"}, "exactly one"),
        ({}, "exactly one"),
        ({"everySeconds": 5, "missed": "some"}, "missed"),
    ],
)
async def test_a_schedule_that_cannot_tick_is_refused_with_a_reason(
    wire: Wire, wrong: dict[str, Any], said: str
) -> None:
    name = wire.name("schedule")
    answer = await wire.post("/api/v1/schedules", name, body={"queue": "q", **wrong})
    assert answer.status == 400
    assert said in str(answer.body)
    assert (await wire.get("/api/v1/schedules", name)).status == 404
