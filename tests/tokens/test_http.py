"""Tokens over HTTP: access, the recorded subject, and polls that end when their token expires."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlane.http.app import HttpApp
from fairlane.http.auth.tokens import Tokens, secret_key
from tests.clock import ManualClock
from tests.conformance.backends import Backend, SqliteBackend
from tests.http.conftest import backend  # noqa: F401
from tests.http.wire import Answer, Wire, serving
from tests.tokens.minted import SECRET, by_hand, claims, token


def bearer(**more: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {token(**more).decode()}"}


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    store = SqliteBackend(tmp_path / "queue.db")
    await store.make()
    async with tokens_at(store) as wire:
        yield wire


@asynccontextmanager
async def tokens_at(store: Backend) -> AsyncIterator[Wire]:
    """A broker over a store that requires tokens."""
    async with serving(await store.open(None), tokens=Tokens([secret_key(SECRET)])) as wire:
        yield wire


async def ask(wire: Wire, method: str, path: str, body: Any = None, **more: Any) -> Answer:
    given = {} if body is None else {"body": body}
    return await wire.ask(method, path, headers=bearer(**more), **given)


def push_of(queue: str, **item: Any) -> dict[str, Any]:
    return {"items": [{"queue": queue, "payload": {"n": 1}, **item}]}


async def test_nobody_gets_in_without_a_token(wire: Wire) -> None:
    for headers in (None, {"authorization": "Bearer"}, {"authorization": "Basic YTpi"}, {"authorization": ""}):
        answer = await wire.ask("GET", "/api/v1/status", headers=headers)
        answer.refused(401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    (await wire.get("/livez")).ok()
    (await ask(wire, "GET", "/api/v1/status")).ok()
    bare = {"authorization": token().decode()}  # as published clients may send it
    (await wire.ask("GET", "/api/v1/status", headers=bare)).ok()
    (await wire.ask("GET", "/api/v1/status", headers={"authorization": f"bearer  {token().decode()}"})).ok()


async def test_a_login_by_token_ends_with_the_token_and_where_tokens_are_accepted_no_more(tmp_path: Path) -> None:
    store, clock = SqliteBackend(tmp_path / "own.db"), ManualClock()
    await store.make()
    accepted = Tokens([secret_key(SECRET)])
    async with serving(await store.open(clock), tokens=accepted) as wire:
        sent = await logged_in(wire, exp=int(time.time()) + 3600, role="read-only")
        me = (await wire.get("/api/v1/whoami", headers=sent)).ok()
        assert (me["name"], me["scopes"]) == ("token:alice", ["browse", "status"])
        (await wire.ask("POST", "/api/v1/push", body=push_of("orders"), headers=sent)).refused(403, "forbidden")
    async with serving(await store.open(clock)) as wire:
        wire.app.broker.process.credentials.require(required=True, ignored=False)
        (await wire.get("/api/v1/whoami", headers=sent)).refused(401, "unauthenticated")
    async with serving(await store.open(clock), tokens=accepted) as wire:
        (await wire.get("/api/v1/whoami", headers=sent)).ok()
        clock.advance(3700)  # tokens have a leeway
        (await wire.get("/api/v1/whoami", headers=sent)).refused(401, "unauthenticated")


async def logged_in(wire: Wire, **more: Any) -> dict[str, str]:
    """Log in with a token of these claims. Returns the header that a browser then sends."""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(f"{wire.base}/api/v1/login", json={"key": token(**more).decode()}) as answer,
    ):
        assert answer.status == 200
        return {"cookie": f"fairlane_session={answer.cookies['fairlane_session'].value}"}


async def test_a_strangers_body_is_not_read(wire: Wire) -> None:
    bad = {"authorization": "Bearer " + by_hand({"alg": "none"}, claims()).decode()}
    answer = await wire.ask("POST", "/api/v1/push", body=b"[" * 100, headers=bad)
    answer.refused(401, "unauthenticated")


async def test_a_role_is_enough_or_is_not(wire: Wire) -> None:
    (await ask(wire, "POST", "/api/v1/push", push_of("orders"), role="read-only")).refused(403, "forbidden")
    (await ask(wire, "POST", "/api/v1/push", push_of("orders"), role="not-admin")).refused(403, "forbidden")
    (await ask(wire, "POST", "/api/v1/push", push_of("orders"), role="read-write")).ok(201)
    (await ask(wire, "GET", "/api/v1/status", role="read-only")).ok()


async def test_messages_carry_the_subject_of_their_token(backend: Backend) -> None:  # noqa: F811
    """The subject is visible when messages are pushed, popped, listed, shown and dead-lettered."""
    await backend.make()
    async with tokens_at(backend) as wire:
        queue = "stamped"
        spoofed = {"producerSub": "mallory", "traceId": "0193f3a2-5b7a-7000-8000-000000000001", "maxAttempts": 1}
        (await ask(wire, "POST", "/api/v1/push", push_of(queue, **spoofed), sub='al"ice \U0001f680')).ok(201)
        (await ask(wire, "POST", "/api/v1/push", push_of(queue, transactionId="t-2"), sub=None)).ok(201)
        operation = {"type": "push", "items": push_of(queue, producerSub="mallory")["items"]}
        (await ask(wire, "POST", "/api/v1/transaction", {"operations": [operation]}, sub="bob")).ok()
        quoting = push_of(queue, payload={"a": ',"producerSub":"mallory"'})
        (await ask(wire, "POST", "/api/v1/push", quoting, sub=None)).ok(201)
        popped = (await ask(wire, "GET", f"/api/v1/pop/queue/{queue}?batch=10&consumerGroup=g")).ok()["messages"]
        subjects = ['al"ice \U0001f680', None, "bob", None]
        assert [message["producerSub"] for message in popped] == subjects
        listed = (await ask(wire, "GET", f"/api/v1/messages?queue={queue}")).ok()["messages"]
        assert [message["producerSub"] for message in listed] == subjects[::-1]
        first = popped[0]
        path = f"/api/v1/messages/{first['partitionId']}/{first['transactionId']}"
        assert (await ask(wire, "GET", path)).ok()["producerSub"] == subjects[0]
        failed = {name: first[name] for name in ("transactionId", "partitionId", "leaseId")} | {"status": "failed"}
        (await ask(wire, "POST", "/api/v1/ack", failed | {"consumerGroup": "g"})).ok()
        [letter] = (await ask(wire, "GET", f"/api/v1/dlq?queue={queue}")).ok()["messages"]
        assert letter["producerSub"] == subjects[0]
        (await ask(wire, "POST", "/api/v1/dlq/replay", {"queue": queue})).ok()
        again = (await ask(wire, "GET", f"/api/v1/messages?queue={queue}")).ok()["messages"]
        assert again[0]["producerSub"] == subjects[0]


async def test_a_poll_ends_with_its_token(wire: Wire) -> None:
    now = int(time.time())
    ending = {"exp": now - 29}  # valid for at most a second
    (await ask(wire, "POST", "/api/v1/push", push_of("other"))).ok(201)
    answer = await ask(wire, "GET", "/api/v1/pop/queue/empty?wait=true&timeout=60000", **ending)
    answer.refused(401)
    assert time.time() - now < 50


async def test_two_credentials_are_none(wire: Wire) -> None:
    assert isinstance(wire.app, HttpApp)
    async with aiohttp.ClientSession() as session:
        headers = [("authorization", f"Bearer {token().decode()}"), ("authorization", "Bearer x")]
        async with session.get(f"{wire.base}/api/v1/status", headers=headers) as response:
            assert response.status in (400, 401)


async def test_where_there_are_tenants_a_token_names_one_that_is_there(wire: Wire) -> None:
    (await ask(wire, "GET", "/api/v1/whoami")).ok()
    (await ask(wire, "GET", "/api/v1/whoami", tenant="acme")).refused(401, "unauthenticated")
    await wire.app.broker.tenants.create("acme")
    refused = (await ask(wire, "GET", "/api/v1/tenants", role="admin")).refused(401, "unauthenticated")
    assert "names no tenant" in refused["error"]
    assert (await ask(wire, "GET", "/api/v1/whoami", tenant="acme")).ok()["tenant"] == "acme"
    (await ask(wire, "GET", "/api/v1/tenants", role="admin", tenant="acme")).refused(403)
    (await ask(wire, "GET", "/api/v1/tenants", role="admin", tenant="default")).ok()
    await wire.app.broker.tenants.delete("acme")
    (await ask(wire, "GET", "/api/v1/whoami", tenant="acme")).refused(401)
    (await ask(wire, "GET", "/api/v1/tenants", role="admin")).ok()
