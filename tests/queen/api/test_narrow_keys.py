"""Queen's endpoints by a key for some queues."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.runtime.clock import wall_clock
from tests.clock import ManualClock
from tests.conformance.backends import Backend
from tests.http.test_narrow_keys import Narrow, narrowed


async def test_notes_and_streams_lead_to_their_queue_first(narrow: Narrow) -> None:
    for queue, allowed in ((narrow.theirs, False), (narrow.mine, True)):
        message = await narrow.message(queue)
        partition, id = message["partitionId"], message["transactionId"]
        asked: list[tuple[str, str, Any]] = [
            ("GET", f"/api/v1/traces/{partition}/{id}", msgspec.UNSET),
            ("POST", "/api/v1/traces", {"transactionId": id, "partitionId": partition, "data": {"a": 1}}),
            ("POST", "/streams/v1/queries", {"name": queue, "source_queue": queue, "config_hash": "x"}),
        ]
        for method, path, body in asked:
            answer = await narrow.ask(method, path, body)
            assert (answer.status != 403) is allowed, (method, path, answer.status, answer.body[:200])
            if not allowed:
                answer.refused(403, "forbidden")


async def test_names_of_traces_are_those_of_queues_that_the_caller_may_browse(narrow: Narrow) -> None:
    both, only = f"both-{narrow.mine}", f"only-{narrow.mine}"
    for queue, names in ((narrow.mine, [both]), (narrow.theirs, [both, only])):
        message = await narrow.message(queue)
        trace = {name: message[name] for name in ("transactionId", "partitionId")}
        (await narrow.ask("POST", "/api/v1/traces", {**trace, "traceNames": names, "data": queue}, admin=True)).ok(201)
    listed = (await narrow.ask("GET", "/api/v1/traces/names?limit=1000")).ok()
    assert [(one["trace_name"], one["trace_count"]) for one in listed["trace_names"]] == [(both, 1)]
    assert listed["total"] == 1
    found = (await narrow.ask("GET", f"/api/v1/traces/by-name/{both}")).ok()
    assert [one["data"] for one in found["traces"]] == [narrow.mine]
    assert found["total"] == 1
    hidden = (await narrow.ask("GET", f"/api/v1/traces/by-name/{only}")).ok()
    assert (hidden["traces"], hidden["total"]) == ([], 0)
    assert (await narrow.ask("GET", f"/api/v1/traces/by-name/{both}", admin=True)).ok()["total"] == 2


async def test_analytics_tell_of_queues_that_the_caller_may_see(narrow: Narrow) -> None:
    for queue in (narrow.mine, narrow.theirs):
        await narrow.message(queue)
    paths = ["analytics/queue-lag", "analytics/queue-ops", "analytics/queue-parked-replicas", "analytics/retention"]
    paths += ["status/queues?limit=1000"]
    shown = {}
    for path in paths:
        shown[path] = (await narrow.ask("GET", f"/api/v1/{path}")).ok()
        assert narrow.theirs.encode() not in msgspec.json.encode(shown[path])
    assert {one["queueName"] for one in shown["analytics/queue-lag"]} == {narrow.mine}
    assert shown["analytics/queue-ops"]["queues"] == [narrow.mine]
    assert [one["name"] for one in shown["status/queues?limit=1000"]["queues"]] == [narrow.mine]


async def test_series_of_retention_tell_of_queues_that_the_caller_may_see(backend: Backend) -> None:
    clock = ManualClock(wall_clock() - 600_000_000)  # another test of this database has the real one
    async with narrowed(backend, clock) as narrow:
        for queue in (narrow.mine, narrow.theirs):
            rules: dict[str, Any] = {"retention_enabled": True, "retention_seconds": 60}
            await narrow.wire.app.broker.queues.configure(queue, **rules)
            await narrow.wire.app.broker.push(queue, 1)
        clock.advance(60)
        (await narrow.ask("POST", "/api/v1/retention/run", admin=True)).ok()
        assert (await narrow.ask("GET", "/api/v1/analytics/retention")).ok()["totals"]["totalMsgs"] == 1
