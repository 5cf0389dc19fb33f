"""API keys: creation, permissions, and expiry."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.keys import Keys
from fairlane.errors import AlreadyExists, Forbidden, InvalidRequest, NotFound, StoreUnavailable, Unauthenticated
from fairlane.model.api_key import is_whole
from fairlane.model.moment import Moment, timestamp
from fairlane.model.principal import Principal
from fairlane.store.journal.journal import Journal
from tests.clock import ManualClock
from tests.conformance.backends import SqliteBackend
from tests.http.wire import Wire, serving
from tests.until import until

SECRET = re.compile(r"fl_[0-9a-f]{72}")


class World:
    def __init__(self, wire: Wire, clock: ManualClock) -> None:
        self.wire, self.clock = wire, clock
        self.broker: Broker = wire.app.broker
        self.keys: Keys = self.broker.keys

    def caller(self, key: str) -> Principal:
        return self.broker.process.credentials.caller(key)

    async def ask(self, key: str, method: str, path: str, **more: Any) -> Any:
        return await self.wire.ask(method, path, headers={"authorization": f"Bearer {key}"}, **more)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    clock = ManualClock()
    async with serving(await backend.open(clock)) as wire:
        yield World(wire, clock)


async def test_nobody_is_asked_for_a_key_until_there_is_one_and_then_everybody(world: World) -> None:
    (await world.wire.get("/api/v1/resources/queues")).ok()
    assert (await world.wire.get("/api/v1/whoami")).ok()["open"]
    made = (await world.wire.post("/api/v1/keys", body={"name": "root", "role": "admin"})).ok(201)
    assert SECRET.fullmatch(made["key"])
    assert is_whole(made["key"])
    (await world.wire.get("/api/v1/resources/queues")).refused(401)
    (await world.wire.get("/livez")).ok()
    (await world.ask(made["key"], "DELETE", "/api/v1/keys/root")).ok()
    (await world.wire.get("/api/v1/resources/queues")).refused(401)  # a deleted key is refused


async def test_the_secret_is_shown_once_and_stored_nowhere(world: World, tmp_path: Path) -> None:
    made = await world.keys.create("root", role="admin")
    listed = (await world.ask(made.key, "GET", "/api/v1/keys")).body
    assert made.key.encode() not in listed
    assert b"hash" not in listed
    await world.broker._engine.store.now()
    stored = await asyncio.to_thread(lambda: b"".join(file.read_bytes() for file in tmp_path.iterdir()))
    assert made.key[3:-8].encode() not in stored
    assert b"root" in stored, "the test looks where keys are"


@pytest.mark.parametrize("change", [lambda key: key[:-1], lambda key: key[:20] + "x" + key[21:], str.upper])
async def test_a_mistyped_key_is_told_from_one_that_is_not_good(world: World, change: Any) -> None:
    made = await world.keys.create("root", role="admin")
    with pytest.raises(Unauthenticated, match="mistyped"):
        world.caller(change(made.key))
    await world.keys.revoke("root")
    with pytest.raises(Unauthenticated, match="unknown, revoked or expired"):
        world.caller(made.key)


async def test_a_key_makes_no_key_that_may_do_more_or_lasts_longer(world: World) -> None:
    until_then = Moment(world.clock() + 60_000_000)
    made = await world.keys.create("team", scopes=["keys", "push:team.*"], expires_at=until_then)
    root = await world.keys.create("root", role="admin")
    team = world.caller(made.key)
    for scopes in (["push"], ["push:team*"], ["pop:team.a"], ["admin"], ["push:team.a", "status"]):
        with pytest.raises(Forbidden, match="may do more"):
            await world.keys.create("more", scopes=scopes, expires_at=until_then, caller=team)
    with pytest.raises(Forbidden, match="longer"):
        await world.keys.create("longer", scopes=["push:team.a"], caller=team)
    child = await world.keys.create("child", scopes=["push:team.a"], expires_at=until_then, caller=team)
    assert child.created_by == "key:team"
    for verb in (world.keys.rotate, world.keys.revoke):
        with pytest.raises(Forbidden, match="may do more"):
            await verb("root", caller=team)
    assert world.caller(root.key).name == "key:root"
    refused = await world.ask(made.key, "POST", "/api/v1/keys", body={"name": "x", "role": "admin"})
    refused.refused(403, "forbidden")


async def test_an_expired_key_is_refused_and_its_poll_ends(world: World) -> None:
    until_then = timestamp(world.clock() + 10_000_000)
    body = {"name": "worker", "role": "read-write", "expiresAt": until_then}
    made = (await world.wire.post("/api/v1/keys", body=body)).ok(201)
    await world.broker.queues.configure("orders")
    path = "/api/v1/pop/queue/orders?wait=true&timeout=60000"
    poll = asyncio.create_task(world.ask(made["key"], "GET", path))
    await until(lambda: len(world.broker._engine.waiters))
    world.clock.advance(11)
    answer = await poll
    answer.refused(401, "unauthenticated")
    assert answer.headers["Connection"] == "close"
    (await world.ask(made["key"], "GET", "/api/v1/whoami")).refused(401)
    assert (await world.keys.get("worker")).status == "expired"


async def test_a_revoked_key_ends_polls_and_live_streams_and_no_others(world: World) -> None:
    made = await world.keys.create("worker", role="read-write")
    other = await world.keys.create("other", role="read-write")
    await world.broker.queues.configure("orders")
    path = "/api/v1/pop/queue/orders?wait=true&timeout=60000"
    polls = [asyncio.create_task(world.ask(key, "GET", path)) for key in (made.key, other.key)]
    live = asyncio.create_task(world.ask(made.key, "GET", "/api/v1/live?watch=/api/v1/resources/queues"))
    await until(lambda: len(world.broker._engine.waiters) == 2 and len(world.broker.process.credentials._waiting) == 3)
    await world.keys.revoke(made.id)
    (await polls[0]).refused(401)
    assert (await live).status == 200  # it started successfully and ended
    assert not polls[1].done()
    await world.broker.push("orders", 1)
    assert (await polls[1]).ok()["messages"][0]["data"] == 1


async def test_one_key_never_takes_all_the_room_that_polls_have(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None), polls_max=4) as wire:
        world = World(wire, ManualClock())
        greedy = await world.keys.create("greedy", role="read-write")
        other = await world.keys.create("other", role="read-write")
        await world.broker.queues.configure("orders")
        path = "/api/v1/pop/queue/orders?wait=true&timeout=60000"
        polls = [asyncio.create_task(world.ask(greedy.key, "GET", path)) for _ in range(3)]
        await until(lambda: len(world.broker._engine.waiters) == 3)
        refused = (await world.ask(greedy.key, "GET", path)).refused(429, "overloaded")
        assert "key:greedy has 3 waiting requests" in refused["error"]
        polls.append(asyncio.create_task(world.ask(other.key, "GET", path)))
        await until(lambda: len(world.broker._engine.waiters) == 4)
        await world.broker.pauses.pause_pops(True)  # all of them end with nothing
        for poll in polls:
            assert (await poll).status in (200, 204)
        assert not world.broker.process.credentials._waiting_of


async def test_keys_that_were_read_earlier_do_not_replace_those_read_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was created meanwhile would be refused again, and a revoked one accepted."""
    credentials, store = world.broker.process.credentials, world.broker._engine.store
    read, slow, go_on = store.api_keys.load, asyncio.Event(), asyncio.Event()

    async def slowly() -> Any:
        found = await read()
        slow.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(store.api_keys, "load", slowly)
    earlier = asyncio.create_task(credentials.reload())
    await slow.wait()
    monkeypatch.setattr(store.api_keys, "load", read)
    made = await world.keys.create("app", role="admin")
    go_on.set()
    await earlier
    assert world.caller(made.key).name == "key:app"


async def test_a_rotated_key_has_two_secrets_for_a_while(world: World) -> None:
    made = await world.keys.create("app", role="read-write")
    rotated = await world.keys.rotate("app", grace_seconds=60)
    assert world.caller(made.key).key_id == world.caller(rotated.key).key_id == made.id
    world.clock.advance(61)
    with pytest.raises(Unauthenticated):
        world.caller(made.key)
    assert world.caller(rotated.key).name == "key:app"


async def test_when_a_key_was_used_last_is_written_beside_requests(world: World) -> None:
    made = await world.keys.create("app", role="admin")
    assert (await world.keys.get("app")).used_at is None
    (await world.ask(made.key, "GET", "/api/v1/whoami")).ok()

    async def is_known() -> bool:
        return (await world.keys.get("app")).used_at is not None

    await until(is_known)


async def test_mistakes_are_told(world: World) -> None:
    await world.keys.create("app", role="admin")
    with pytest.raises(AlreadyExists, match="rotate it"):
        await world.keys.create("app", role="admin")
    with pytest.raises(InvalidRequest, match="a role"):
        await world.keys.create("none")
    with pytest.raises(InvalidRequest, match="is not a scope"):
        await world.keys.create("wrong", scopes=["pushes"])
    with pytest.raises(InvalidRequest, match="past"):
        await world.keys.create("late", role="admin", expires_at=Moment(world.clock() - 1))
    with pytest.raises(NotFound, match="no key 'ghost'"):
        await world.keys.revoke("ghost")


async def away() -> Any:
    raise StoreUnavailable("it is away")


async def test_while_the_store_is_away_known_keys_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await world.keys.create("app", role="admin")
    monkeypatch.setattr(world.broker._engine.store.api_keys, "load", away)
    with pytest.raises(StoreUnavailable):
        await world.broker.process.credentials.reload()
    (await world.ask(made.key, "GET", "/api/v1/whoami")).ok()


async def test_a_start_without_the_store_goes_by_the_keys_beside_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()

    async def journal() -> Journal:
        return await Journal.open(str(tmp_path / "journal"), bytes_max=10**9, store="a")

    async with serving(await backend.open(None), journal=(saved := await journal())) as wire:
        made = await wire.app.broker.keys.create("app", role="admin")

        async def is_saved() -> bool:
            keys = await saved.keys()
            return keys is not None and keys.count == 1

        await until(is_saved)
    store = await backend.open(None)
    monkeypatch.setattr(store.api_keys, "load", away)
    async with serving(store, journal=await journal()) as wire:
        header = {"authorization": f"Bearer {made.key}"}
        (await wire.ask("GET", "/api/v1/whoami", headers=header)).ok()
        (await wire.ask("GET", "/api/v1/whoami")).refused(401)


async def test_whoever_must_know_its_callers_lets_nobody_in_before_it_knows_the_keys(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other machines reach this broker, and its store has been unavailable since the start."""
    made = await world.keys.create("app", role="admin")
    credentials = world.broker.process.credentials
    monkeypatch.setattr(credentials, "load", lambda _: None)  # the watch may be about to
    credentials.known = None
    credentials.require(required=True, ignored=False)
    (await world.ask(made.key, "GET", "/api/v1/whoami")).refused(503, "store_unavailable")
    (await world.wire.get("/api/v1/whoami")).refused(401)
    monkeypatch.undo()
    await credentials.reload()
    (await world.ask(made.key, "GET", "/api/v1/whoami")).ok()


async def test_a_live_stream_that_is_behind_shows_nothing_after_its_key_is_revoked(world: World) -> None:
    made = await world.keys.create("reader", role="read-only")
    live = world.wire.app.live
    stream = live.watch(["/api/v1/resources/queues"], world.caller(made.key))
    assert await anext(stream) == b"retry: 1000\n\n"
    await until(lambda: all(one.version for one in live._watched.values()))  # an answer is ready to be sent
    await world.keys.revoke(made.id)
    with pytest.raises(Unauthenticated):
        await anext(stream)
