"""Keys for some queues: every queue that a request names, directly or by an id, is checked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from fairlane.runtime.clock import wall_clock
from tests.clock import ManualClock
from tests.conformance.backends import Backend
from tests.http.wire import Answer, Wire, serving


class Narrow:
    """A broker with the queue `mine`, which the key covers, and `theirs`, which it does not."""

    def __init__(self, wire: Wire, admin: str, narrow: str, mine: str, theirs: str) -> None:
        self.wire, self.mine, self.theirs = wire, mine, theirs
        self._admin, self._narrow = admin, narrow

    async def ask(self, method: str, path: str, body: Any = msgspec.UNSET, *, admin: bool = False) -> Answer:
        key = self._admin if admin else self._narrow
        return await self.wire.ask(method, path, body=body, headers={"authorization": f"Bearer {key}"})

    async def message(self, queue: str, **query: str) -> dict[str, Any]:
        """Return a message of the queue, leased by the administrator."""
        await self.ask("POST", "/api/v1/push", {"items": [{"queue": queue, "payload": 1}]}, admin=True)
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        popped = await self.ask("GET", f"/api/v1/pop/queue/{queue}?{asked}", admin=True)
        found: dict[str, Any] = popped.ok()["messages"][0]
        return found


@pytest.fixture
async def narrow(backend: Backend) -> AsyncIterator[Narrow]:
    async with narrowed(backend) as narrow:
        yield narrow


@asynccontextmanager
async def narrowed(backend: Backend, clock: ManualClock | None = None) -> AsyncIterator[Narrow]:
    await backend.make()
    async with serving(await backend.open(clock)) as wire:
        tag = wire.name("k").rpartition(" ")[2]
        mine, theirs = f"orders-{tag}", f"bills-{tag}"
        keys = wire.app.broker.keys
        admin = await keys.create(f"admin-{tag}", role="admin")
        scopes = [f"read-write:orders-{tag}*", "spec:shop"]
        made = await keys.create(f"narrow-{tag}", scopes=scopes)
        for queue in (mine, theirs):
            await wire.app.broker.queues.configure(queue, namespace=tag)
        yield Narrow(wire, admin.key, made.key, mine, theirs)
    await backend.sql("DELETE FROM fairlane.api_keys")  # other tests of this database use no keys


async def test_a_push_is_checked_item_by_item(narrow: Narrow) -> None:
    mine, theirs = ({"queue": queue, "payload": 1} for queue in (narrow.mine, narrow.theirs))
    (await narrow.ask("POST", "/api/v1/push", {"items": [mine]})).ok(201)
    refused = await narrow.ask("POST", "/api/v1/push", {"items": [mine, theirs]})
    assert f"push:{narrow.theirs}" in refused.refused(403, "forbidden")["error"]
    assert (await narrow.ask("GET", f"/api/v1/resources/queues/{narrow.mine}")).ok()["totals"]["total"] == 1
    step = {"type": "push", "items": [theirs]}
    (await narrow.ask("POST", "/api/v1/transaction", {"operations": [step]})).refused(403)


async def test_whoever_may_not_create_makes_no_queue_and_no_group(narrow: Narrow) -> None:
    made = await narrow.wire.app.broker.keys.create(f"worker-{narrow.mine}", scopes=["push", "pop"])
    header = {"authorization": f"Bearer {made.key}"}
    items = [{"queue": f"new-{narrow.mine}", "payload": 1}]
    refused = await narrow.wire.ask("POST", "/api/v1/push", body={"items": items}, headers=header)
    assert f"create:new-{narrow.mine}" in refused.refused(403)["error"]
    there = [{"queue": narrow.mine, "payload": 1}]
    (await narrow.wire.ask("POST", "/api/v1/push", body={"items": there}, headers=header)).ok(201)
    path = f"/api/v1/pop/queue/{narrow.mine}"
    (await narrow.wire.ask("GET", f"{path}?consumerGroup=g", headers=header)).refused(403)
    (await narrow.wire.ask("GET", path, headers=header)).ok()
    await narrow.message(narrow.mine, consumerGroup="g")
    assert (await narrow.wire.ask("GET", f"{path}?consumerGroup=g", headers=header)).status in (200, 204)


async def test_ids_lead_to_their_queue_first(narrow: Narrow) -> None:
    for queue, allowed in ((narrow.theirs, False), (narrow.mine, True)):
        message = await narrow.message(queue)
        partition, id, lease = message["partitionId"], message["transactionId"], message["leaseId"]
        ack = {"transactionId": id, "partitionId": partition, "leaseId": lease, "status": "completed"}
        one = f"/api/v1/messages/{partition}/{id}"
        asked: list[tuple[str, str, Any]] = [
            ("GET", one, msgspec.UNSET),
            ("GET", f"{one}/result", msgspec.UNSET),
            ("POST", "/api/v1/effects/k", {"partitionId": partition, "value": 1}),
            ("GET", f"/api/v1/effects/k?partitionId={partition}", msgspec.UNSET),
            ("POST", f"/api/v1/lease/{lease}/extend", {"seconds": 60}),
            ("POST", "/api/v1/transaction", {"operations": [{"type": "ack", **ack}]}),
            ("POST", "/api/v1/ack", ack),
            ("POST", "/api/v1/ack/batch", {"acknowledgments": [ack]}),
            ("POST", f"/api/v1/lease/{lease}/release", msgspec.UNSET),
            ("POST", f"{one}/retry", msgspec.UNSET),
            ("POST", f"{one}/dlq", {}),
            ("DELETE", one, msgspec.UNSET),
        ]
        for method, path, body in asked:
            answer = await narrow.ask(method, path, body)
            assert (answer.status != 403) is allowed, (method, path, answer.status, answer.body[:200])
            if not allowed:
                answer.refused(403, "forbidden")


async def test_what_names_a_queue_in_its_body_or_query_is_checked(narrow: Narrow) -> None:
    for queue, allowed in ((narrow.theirs, False), (narrow.mine, True)):
        asked: list[tuple[str, str, Any]] = [
            ("POST", "/api/v1/configure", {"queue": queue, "options": {}}),
            ("POST", "/api/v1/configure", {"queue": narrow.mine, "options": {"deadLetterQueue": queue}}),
            ("PATCH", f"/api/v1/resources/queues/{narrow.mine}", {"options": {"deadLetterQueue": queue}}),
            ("GET", f"/api/v1/resources/partitions?queue={queue}", msgspec.UNSET),
            ("GET", f"/api/v1/messages?queue={queue}", msgspec.UNSET),
            ("GET", f"/api/v1/dlq?queue={queue}", msgspec.UNSET),
            ("GET", f"/api/v1/dlq/errors?queue={queue}", msgspec.UNSET),
            ("DELETE", f"/api/v1/dlq?queue={queue}", msgspec.UNSET),
            ("POST", "/api/v1/dlq/replay", {"queue": queue}),
            ("GET", f"/api/v1/leases?queue={queue}", msgspec.UNSET),
            ("GET", f"/api/v1/history?queue={queue}", msgspec.UNSET),
            ("GET", f"/api/v1/operations?queue={queue}", msgspec.UNSET),
            ("POST", "/api/v1/operations/retry", {"queue": queue}),
            ("POST", "/api/v1/operations/discard", {"queue": queue}),
            ("POST", f"/api/v1/schedules/s-{queue}", {"queue": queue, "everySeconds": 3600}),
        ]
        for method, path, body in asked:
            answer = await narrow.ask(method, path, body)
            assert (answer.status != 403) is allowed, (method, path, answer.status, answer.body[:200])
    # Without a queue they apply to all queues.
    for path in ("messages", "dlq", "leases", "history", "operations"):
        (await narrow.ask("GET", f"/api/v1/{path}")).refused(403)


async def test_fan_ins_are_those_of_the_queues_of_their_callbacks_and_parts(narrow: Narrow) -> None:
    mine, theirs = narrow.mine, narrow.theirs

    async def make(id: str, part: str, then: str, *, admin: bool) -> Answer:
        items = [{"queue": part, "payload": 1, "partition": "parts"}]
        step = {"type": "fan_in", "id": f"{id}-{mine}", "items": items, "then": {"queue": then, "payload": 1}}
        return await narrow.ask("POST", "/api/v1/transaction", {"operations": [step]}, admin=admin)

    for id, part, then in (("a", theirs, theirs), ("b", mine, theirs), ("c", theirs, mine)):
        (await make(id, part, then, admin=False)).refused(403)
        (await make(id, part, then, admin=True)).ok()
        (await narrow.ask("GET", f"/api/v1/fan-ins/{id}-{mine}")).refused(403)
    for id in "ab":
        (await narrow.ask("DELETE", f"/api/v1/fan-ins/{id}-{mine}")).refused(403)
    (await make("d", mine, mine, admin=False)).ok()
    listed = (await narrow.ask("GET", "/api/v1/fan-ins")).ok()["fanIns"]
    assert {one["id"] for one in listed if one["id"].endswith(mine)} == {f"c-{mine}", f"d-{mine}"}
    (await narrow.ask("GET", f"/api/v1/fan-ins/d-{mine}")).ok()
    (await narrow.ask("DELETE", f"/api/v1/fan-ins/d-{mine}")).ok()


async def test_schedules_are_those_of_their_queue(narrow: Narrow) -> None:
    name = f"s-{narrow.theirs}"
    body = {"queue": narrow.theirs, "everySeconds": 3600}
    (await narrow.ask("POST", f"/api/v1/schedules/{name}", body, admin=True)).ok()
    for method, verb in (("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/run"), ("DELETE", "")):
        (await narrow.ask(method, f"/api/v1/schedules/{name}{verb}")).refused(403)
    replaced = {"queue": narrow.mine, "everySeconds": 3600}
    (await narrow.ask("POST", f"/api/v1/schedules/{name}", replaced)).refused(403)
    listed = (await narrow.ask("GET", "/api/v1/schedules")).ok()["schedules"]
    assert name not in {one["name"] for one in listed}


async def test_lists_show_what_the_caller_may_see(narrow: Narrow) -> None:
    for queue in (narrow.mine, narrow.theirs):
        await narrow.message(queue, consumerGroup="g")
    queues = (await narrow.ask("GET", "/api/v1/resources/queues")).ok()
    assert [one["name"] for one in queues["queues"]] == [narrow.mine]
    assert queues["total"] == 1
    groups = (await narrow.ask("GET", "/api/v1/consumer-groups")).ok()
    assert {one["queueName"] for one in groups} == {narrow.mine}
    assert list((await narrow.ask("GET", "/api/v1/consumer-groups/g")).ok()) == [narrow.mine]
    assert (await narrow.ask("GET", "/api/v1/resources/overview")).ok()["queues"] == 1
    admin = (await narrow.ask("GET", "/admin/queues")).ok()
    assert narrow.theirs.encode() not in msgspec.json.encode(admin)


async def test_versions_of_specs_are_those_of_apps_that_the_caller_may_see(narrow: Narrow) -> None:
    seen, hidden, versions = f"seen-{narrow.mine}", f"hidden-{narrow.mine}", {}
    for app, queue in ((seen, narrow.mine), (hidden, narrow.theirs), ("shop", f"else-{narrow.theirs}")):
        body = {"spec": {"app": app, "version": 1, "queues": {queue: {"options": {}}}}}
        applied = await narrow.ask("POST", "/api/v1/spec/apply", body | {"consent": True}, admin=True)
        versions[app] = applied.ok()["version"]
    listed = (await narrow.ask("GET", "/api/v1/spec/versions?limit=1000")).ok()["versions"]
    assert {one["app"] for one in listed} == {seen, "shop"}
    assert [one["version"] for one in listed] == sorted((one["version"] for one in listed), reverse=True)
    for app, version in versions.items():
        listed = (await narrow.ask("GET", f"/api/v1/spec/versions?app={app}")).ok()["versions"]
        assert [one["version"] for one in listed[:1]] == ([] if app == hidden else [version])
        for path in (f"versions/{version}", f"export?app={app}"):
            answer = await narrow.ask("GET", f"/api/v1/spec/{path}")
            if app == hidden:
                assert f"spec:{hidden}" in answer.refused(403, "forbidden")["error"]
            else:
                answer.ok()
    (await narrow.ask("GET", "/api/v1/spec/export?app=nobody")).refused(404)


async def test_the_history_of_retention_tells_nothing_of_other_queues(narrow: Narrow) -> None:
    for queue in (narrow.mine, narrow.theirs):
        await narrow.message(queue)
    shown = (await narrow.ask("GET", "/api/v1/retention/history")).ok()
    assert narrow.theirs.encode() not in msgspec.json.encode(shown)


async def test_what_retention_deleted_is_told_of_queues_that_the_caller_may_see(backend: Backend) -> None:
    clock = ManualClock(wall_clock() - 600_000_000)  # another test of this database uses the real clock
    async with narrowed(backend, clock) as narrow:
        for queue in (narrow.mine, narrow.theirs):
            rules: dict[str, Any] = {"retention_enabled": True, "retention_seconds": 60}
            await narrow.wire.app.broker.queues.configure(queue, **rules)
            await narrow.wire.app.broker.push(queue, 1)
        clock.advance(60)
        (await narrow.ask("POST", "/api/v1/retention/run", admin=True)).ok()

        async def deleted(*, admin: bool) -> set[str]:
            found = (await narrow.ask("GET", "/api/v1/retention/history", admin=admin)).ok()["history"]
            return {one["queue"] for one in found} & {narrow.mine, narrow.theirs}

        assert await deleted(admin=True) == {narrow.mine, narrow.theirs}
        assert await deleted(admin=False) == {narrow.mine}


async def test_pop_any_takes_from_the_queues_it_may(narrow: Narrow) -> None:
    for queue in (narrow.theirs, narrow.mine, narrow.theirs):
        await narrow.ask("POST", "/api/v1/push", {"items": [{"queue": queue, "payload": queue}]}, admin=True)
    namespace = narrow.mine.partition("-")[2]
    met = []
    while (answer := await narrow.ask("GET", f"/api/v1/pop?namespace={namespace}&batch=1&autoAck=true")).status == 200:
        met += [message["data"] for message in answer.ok()["messages"]]
    assert met == [narrow.mine]


async def test_a_spec_needs_its_app_and_every_queue_it_reaches(narrow: Narrow) -> None:
    def spec(app: str, queue: str, **options: Any) -> dict[str, Any]:
        return {"spec": {"app": app, "version": 1, "queues": {queue: {"options": options}}}}

    (await narrow.ask("POST", "/api/v1/spec/plan", spec("shop", narrow.mine))).ok()
    (await narrow.ask("POST", "/api/v1/spec/plan", spec("other", narrow.mine))).refused(403)
    (await narrow.ask("POST", "/api/v1/spec/plan", spec("shop", narrow.theirs))).refused(403)
    forwarded = spec("shop", narrow.mine, dead_letter_queue=narrow.theirs)
    (await narrow.ask("POST", "/api/v1/spec/apply", forwarded)).refused(403)


async def test_who_applied_a_spec_is_told_by_the_credential(narrow: Narrow) -> None:
    app = f"app-{narrow.mine}"
    body = {"spec": {"app": app, "version": 1, "queues": {}}, "appliedBy": "somebody else"}
    (await narrow.ask("POST", "/api/v1/spec/apply", body, admin=True)).ok()
    versions = (await narrow.ask("GET", f"/api/v1/spec/versions?app={app}", admin=True)).ok()["versions"]
    assert [one["appliedBy"] for one in versions] == [f"key:admin-{narrow.mine.partition('-')[2]}"]


async def test_a_live_stream_shows_what_its_caller_may_see(narrow: Narrow) -> None:
    live, credentials = narrow.wire.app.live, narrow.wire.app.broker.process.credentials
    caller = credentials.caller(narrow._narrow)
    paths = [f"/api/v1/resources/queues/{narrow.theirs}", f"/api/v1/resources/queues/{narrow.mine}"]
    stream = live.watch(paths, caller)
    seen = b""
    async for part in stream:
        seen += part
        if seen.count(b"event: ") == 2:
            break
    await stream.aclose()
    assert seen.count(b"event: problem") == 1
    assert f"status:{narrow.theirs}".encode() in seen
