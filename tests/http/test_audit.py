"""The audit log over HTTP: recorded actions and callers, and detection of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.broker import audit
from fairlane.broker.audit import REFUSALS_MAX
from tests.clock import ManualClock
from tests.conformance.backends import SqliteBackend
from tests.http.wire import Answer, Wire, serving
from tests.lost_answers import APPLIED, AWAY, fails
from tests.until import until


class World:
    def __init__(self, wire: Wire, backend: SqliteBackend, key: str) -> None:
        self.wire, self.backend, self.key = wire, backend, key
        self.audit = wire.app.broker.audit

    async def ask(self, method: str, path: str, key: str | None = None, **more: Any) -> Answer:
        headers = {"authorization": f"Bearer {self.key if key is None else key}"}
        return await self.wire.ask(method, path, headers=headers, **more)

    async def entries(self) -> list[tuple[str, str, str, str]]:
        """Return (caller, action, target, outcome), newest first."""
        found = (await self.ask("GET", "/api/v1/audit")).ok()["entries"]
        return [(one["caller"], one["action"], one["target"], one["outcome"]) for one in found]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None)) as wire:
        made = await wire.app.broker.keys.create("root", role="admin")
        yield World(wire, backend, made.key)


async def test_what_was_changed_is_noted_before_it_is_answered(world: World) -> None:
    (await world.ask("POST", "/api/v1/configure", body={"queue": "orders", "options": {}})).ok()
    assert (await world.entries())[0] == ("key:root", "queues.configure", "/api/v1/configure orders", "done")
    (await world.ask("POST", "/api/v1/queues/ghost/pause", body={})).refused(404)
    assert (await world.entries())[0] == ("key:root", "queues.pause", "/api/v1/queues/ghost/pause", "failed")
    spec = {"spec": {"app": "shop", "version": 1, "queues": {}}, "appliedBy": "somebody else"}
    (await world.ask("POST", "/api/v1/spec/apply", body=spec)).ok()
    assert (await world.entries())[0] == ("key:root", "specs.apply", "/api/v1/spec/apply shop", "done")
    (await world.ask("POST", "/api/v1/push", body={"items": [{"queue": "orders", "payload": 1}]})).ok(201)
    (await world.ask("GET", "/api/v1/pop/queue/orders")).ok()
    assert (await world.entries())[0][1] == "specs.apply", "the way of messages is not noted"
    assert (await world.ask("GET", "/api/v1/audit/verify")).ok()["whole"]


async def test_what_was_set_is_noted(world: World) -> None:
    for paused in (True, False):
        (await world.ask("POST", "/api/v1/pauses", body={"pops": paused})).ok()
    path = "/api/v1/pauses"
    assert [one[2] for one in await world.entries()] == [f"{path} pops=false", f"{path} pops=true"]
    options = {"leaseTime": 60, "retryLimit": 2}
    (await world.ask("POST", "/api/v1/configure", body={"queue": "orders", "options": options})).ok()
    assert (await world.entries())[0][2] == '/api/v1/configure orders options={"leaseTime":60,"retryLimit":2}'
    body: dict[str, Any] = {"group": "billing", "partition": "customer 7"}
    (await world.ask("POST", "/api/v1/queues/orders/pause", body=body)).refused(404)
    assert (await world.entries())[0][2] == '/api/v1/queues/orders/pause group="billing" partition="customer 7"'
    body = {"queue": "orders", "everySeconds": 60, "data": {"card": "4111"}}
    (await world.ask("POST", "/api/v1/schedules/tick", body=body)).ok()
    assert (await world.entries())[0][2] == "/api/v1/schedules/tick orders everySeconds=60", "payloads are not noted"
    body = {"pops": True, "password": "secret"}
    (await world.ask("POST", "/api/v1/pauses", body=body)).refused(400)
    assert "secret" not in (await world.entries())[0][2]


async def test_a_delete_of_what_is_not_there_was_not_done(world: World) -> None:
    (await world.ask("POST", "/api/v1/configure", body={"queue": "orders", "options": {}})).ok()
    for outcome in ("done", "failed"):
        (await world.ask("DELETE", "/api/v1/resources/queues/orders")).ok()
        assert (await world.entries())[0][1:] == ("queues.delete", "/api/v1/resources/queues/orders", outcome)
    for path in ("/api/v1/schedules/ghost", "/api/v1/sources/ghost"):
        (await world.ask("DELETE", path)).ok()
        assert (await world.entries())[0][2:] == (path, "failed")


async def test_what_cannot_be_noted_is_not_done(world: World) -> None:
    broker = world.wire.app.broker
    fails(broker._engine.store.audit, "add", AWAY)
    refused = await world.ask("POST", "/api/v1/configure", body={"queue": "orders", "options": {}})
    assert "audit log cannot be written" in refused.refused(503, "unavailable")["error"]
    assert not await broker.queues.exists("orders")
    assert await world.entries() == []
    (await world.ask("POST", "/api/v1/configure", body={"queue": "orders", "options": {}})).ok()
    assert [one[3] for one in await world.entries()] == ["done"]


async def test_an_end_that_cannot_be_noted_now_is_noted_later(world: World) -> None:
    fails(world.wire.app.broker._engine.store.audit, "add", None, AWAY, APPLIED)
    (await world.ask("POST", "/api/v1/configure", body={"queue": "orders", "options": {}})).ok()

    async def ended() -> bool:
        return [one[3] for one in await world.entries()] == ["done"]

    await until(ended)
    assert (await world.ask("GET", "/api/v1/audit/verify")).ok()["whole"]


async def test_an_action_without_an_end_is_listed_as_begun(world: World) -> None:
    """The client disconnected or the broker died before the action ended."""
    broker = world.wire.app.broker
    reached = asyncio.Event()

    async def configure(*arguments: Any, **options: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    real, broker._engine.store.queues.configure = broker._engine.store.queues.configure, configure  # type: ignore[method-assign]
    asking = asyncio.create_task(world.ask("POST", "/api/v1/configure", body={"queue": "orders", "options": {}}))
    await reached.wait()
    begun = ("key:root", "queues.configure", "/api/v1/configure orders", "begun")
    assert await world.entries() == [begun], "noted before anything is done"
    asking.cancel()
    await asyncio.wait([asking])
    broker._engine.store.queues.configure = real  # type: ignore[method-assign]
    (await world.ask("POST", "/api/v1/configure", body={"queue": "other", "options": {}})).ok()
    assert (await world.entries())[1] == begun
    [_, line] = (await world.ask("GET", "/api/v1/audit")).ok()["entries"]
    assert line["endedAt"] is None


async def test_refusals_are_noted_but_not_without_end(world: World) -> None:
    made = (await world.ask("POST", "/api/v1/keys", body={"name": "n", "scopes": ["push:orders"]})).ok(201)
    (await world.ask("DELETE", "/api/v1/resources/queues/orders", key=made["key"])).refused(403)
    (await world.ask("GET", "/api/v1/keys", key="fl_wrong")).refused(401)
    entries = await until(lambda: found(world, 2))
    assert ("nobody", "keys.list_keys", "/api/v1/keys", "refused") in entries
    assert ("key:n", "queues.delete", "/api/v1/resources/queues/orders", "refused") in entries
    for _ in range(3 * REFUSALS_MAX):
        (await world.ask("GET", "/api/v1/keys", key="fl_wrong")).refused(401)
    await until(lambda: found(world, REFUSALS_MAX))
    assert len([one for one in await world.entries() if one[3] == "refused"]) <= REFUSALS_MAX + 3
    assert (await world.ask("GET", "/api/v1/audit/verify")).ok()["whole"]


async def test_the_noise_of_strangers_hides_no_refusal_of_a_key(world: World) -> None:
    keys = {}
    for name in ("insider", "other"):
        made = (await world.ask("POST", "/api/v1/keys", body={"name": name, "scopes": ["push:orders"]})).ok(201)
        keys[name] = made["key"]
    for _ in range(3 * REFUSALS_MAX):
        (await world.ask("GET", "/api/v1/keys", key="fl_wrong")).refused(401)
        (await world.ask("GET", "/api/v1/keys", key=keys["other"])).refused(403)
    for _ in range(5):
        (await world.ask("GET", "/api/v1/keys", key=keys["insider"])).refused(403)

    async def noted() -> bool:
        return [one[0] for one in await world.entries() if one[3] == "refused"].count("key:insider") == 5

    await until(noted)


async def test_logins_of_one_key_are_noted_once_a_minute(world: World) -> None:
    for _ in range(5):
        (await world.ask("POST", "/api/v1/login", body={"key": world.key})).ok()
    assert [one[1] for one in await world.entries()] == ["login"]


async def test_one_key_changes_so_much_at_once_and_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change makes two entries that stay for a year."""
    made = (await world.ask("POST", "/api/v1/keys", body={"name": "n", "scopes": ["configure:orders"]})).ok(201)
    monkeypatch.setitem(audit.BURSTS, "change", (3, 0.001))
    configure: dict[str, Any] = {"body": {"queue": "orders", "options": {}}}
    for _ in range(3):
        (await world.ask("POST", "/api/v1/configure", key=made["key"], **configure)).ok()
    refused = await world.ask("POST", "/api/v1/configure", key=made["key"], **configure)
    assert "key:n" in refused.refused(429, "overloaded")["error"]
    assert float(refused.headers["Retry-After"]) >= 1
    (await world.ask("POST", "/api/v1/configure", **configure)).ok()
    assert len(await world.entries()) == 5, "what was refused is not noted"


async def found(world: World, count: int) -> list[tuple[str, str, str, str]]:
    entries = await world.entries()
    return entries if len([one for one in entries if one[3] == "refused"]) >= count else []


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (
            "UPDATE fairlane.audit_entries SET caller = 'nobody' WHERE number = 2",
            "entry 2 was changed after it was written",
        ),
        ("DELETE FROM fairlane.audit_entries WHERE number = 2", "entries 2 to 2 are missing"),
        ("DELETE FROM fairlane.audit_entries WHERE number = 6", "the last entries are missing"),
        ("DELETE FROM fairlane.audit_entries", "the last entries are missing"),
        ("DELETE FROM fairlane.audit_entries WHERE number < 4", "entries 1 to 3 are missing"),
        (
            "DELETE FROM fairlane.audit_entries WHERE number < 4; "
            "UPDATE fairlane.audit_entries SET caller = 'key:innocent' WHERE number = 4",
            "entry 4 was changed after it was written",
        ),
        (
            "DELETE FROM fairlane.audit_entries WHERE number < 4; "
            "UPDATE fairlane.audit_entries SET at = at - 400 * 86400000000 WHERE number = 4",
            "entry 4 was changed after it was written",
        ),
    ],
)
async def test_a_log_that_was_changed_is_found_out(world: World, statement: str, why: str) -> None:
    for name in ("a", "b", "c"):
        (await world.ask("POST", "/api/v1/configure", body={"queue": name, "options": {}})).ok()
    whole = (await world.ask("GET", "/api/v1/audit/verify")).ok()
    assert (whole["whole"], whole["entries"], whole["first"], whole["last"]) == (True, 6, 1, 6), "beginnings and ends"
    await world.backend.sql(statement)
    changed = (await world.ask("GET", "/api/v1/audit/verify")).ok()
    assert (changed["whole"], why in changed["error"]) == (False, True), changed


async def test_a_log_whose_old_entries_were_deleted_is_whole(tmp_path: Path) -> None:
    backend, clock = SqliteBackend(tmp_path / "queue.db"), ManualClock()
    await backend.make()
    async with serving(await backend.open(clock)) as wire:
        broker = wire.app.broker
        key = (await broker.keys.create("root", role="admin")).key
        world = World(wire, backend, key)
        for days in (0, 300, 300):
            clock.advance(days * 86400)
            (await world.ask("POST", "/api/v1/configure", body={"queue": "orders", "options": {}})).ok()
        while await broker._engine.store.audit.forget(seconds=broker.audit.keep_seconds, limit=100):
            pass
        found = (await world.ask("GET", "/api/v1/audit/verify")).ok()
        assert (found["whole"], found["entries"], found["first"], found["last"]) == (True, 5, 2, 6), found
        clock.advance(1000 * 86400)
        while await broker._engine.store.audit.forget(seconds=broker.audit.keep_seconds, limit=100):
            pass
        found = (await world.ask("GET", "/api/v1/audit/verify")).ok()
        assert (found["whole"], found["entries"], found["first"], found["last"]) == (True, 1, 6, 6), found
