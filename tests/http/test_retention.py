"""Retention over HTTP."""

from __future__ import annotations

from typing import Any

from fairlane.broker.broker import Broker
from fairlane.runtime.clock import wall_clock
from tests.clock import ManualClock
from tests.conformance.backends import Backend
from tests.http.wire import Wire, serving
from tests.queen_package import INSTALLED
from tests.until import until


async def test_rules_are_configured_run_and_told_of(backend: Backend) -> None:
    await backend.make()
    clock = ManualClock(wall_clock() - 600_000_000)  # the service uses this clock, and another test has the real one
    async with serving(await backend.open(clock)) as wire:
        queue = wire.name()
        rules: dict[str, Any] = {"retentionEnabled": True, "retentionSeconds": 60, "deadLetterRetentionSeconds": 30}
        configured = await wire.configure(queue, retryLimit=0, **rules)
        assert {name: configured["options"][name] for name in rules} == rules
        await wire.push(queue, "dies", "stays unread")
        await wire.ack(await wire.pop(queue, batch=1), "failed", error="no")
        clock.advance(60)
        ran = (await wire.post("/api/v1/retention/run")).ok()
        assert ran == {
            "success": True,
            "deleted": [
                {"queue": queue, "rule": "dead_letters", "messages": 1, "unread": 1},
                {"queue": queue, "rule": "retention", "messages": 2, "unread": 1},
            ],
        }
        assert (await wire.post("/api/v1/retention/run")).ok()["deleted"] == []
        history = (await wire.get("/api/v1/retention/history", queue=queue)).ok()["history"]
        assert [(one["queue"], one["rule"], one["messages"]) for one in history] == [
            (queue, "dead_letters", 1),
            (queue, "retention", 2),
        ]
        if INSTALLED:
            series = (await wire.get("/api/v1/analytics/retention", queue=queue)).ok()
            assert series["totals"]["retentionMsgs"] == series["totals"]["totalMsgs"] == 2
            assert [point["retentionMsgs"] for point in series["series"]] == [2]


async def test_a_run_says_when_another_broker_is_at_it(wire: Wire) -> None:
    from fairlane.broker import retention
    from fairlane.model.retention import RETENTION

    leadership = wire.app.broker._engine.store.leadership
    token = await leadership.lead(RETENTION, seconds=60, early=True)
    assert token is not None
    waited, retention._WAIT_SECONDS = retention._WAIT_SECONDS, 0.2
    try:
        (await wire.post("/api/v1/retention/run")).refused(409, "conflict")
    finally:
        retention._WAIT_SECONDS = waited
    await leadership.release(RETENTION, token, seconds=0)
    (await wire.post("/api/v1/retention/run")).ok()


async def test_a_broker_deletes_by_itself_what_its_rules_cover(backend: Backend) -> None:
    await backend.make()
    async with Broker.open(backend.url, retention_interval=0.05, **backend.options) as broker:
        name = f"brief {id(broker)}"
        queue = await broker.queues.configure(name, retention_enabled=True, retention_seconds=1)
        await broker.push(name, 1)

        async def gone() -> bool:
            [state] = await broker._engine.store.statistics.partitions(queue.id)
            return state.start == 1

        await until(gone)
        assert len(await broker.pop(name)) == 0
