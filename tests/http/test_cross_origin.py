"""Pages in the browser of a broker's user cannot use the broker, whatever requests they make the browser send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairlane.errors import InvalidRequest
from fairlane.http.cross_origin import Hosts
from fairlane.http.route_table import ROUTES
from tests.conformance.backends import SqliteBackend
from tests.http.wire import Answer, Wire, serving
from tests.queen_package import INSTALLED
from tests.until import SECONDS_MAX

PAGE = "https://evil.example"
PUSH = {"items": [{"queue": "orders", "payload": 1}]}


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    """One store is enough, because none of these requests reaches it."""
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None)) as wire:
        yield wire


def port(wire: Wire) -> int:
    found = urlsplit(wire.base).port
    assert found is not None
    return found


async def push(wire: Wire, content_type: str = "application/json", **headers: str) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return await wire.ask("POST", "/api/v1/push", body=PUSH, headers={"content-type": content_type} | given)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:6632",
        "127.evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.2",
        "0.0.0.0",
        "[::2]:80",
        "2130706433",
    ],
)
async def test_a_host_that_is_not_ours_is_refused_on_every_route(wire: Wire, host: str) -> None:
    for route in ROUTES:
        refused = await wire.ask(route.method, route.path.replace("{", "").replace("}", ""), headers={"host": host})
        told = refused.refused(403, "host_not_allowed")
        assert "--allowed-hosts" in told["error"]
    assert await wire.pop("orders") == []


@pytest.mark.parametrize("host", ["", "a b", "x@127.0.0.1", "127.0.0.1:x", "[::1", "::1", "127.0.0.1/", "a,b"])
async def test_a_host_that_is_none_is_refused(wire: Wire, host: str) -> None:
    (await wire.get("/livez", headers={"host": host})).refused(400)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:6632", "[::1]:80", "[0::0:1]"])
async def test_loopback_goes_by_all_its_names(wire: Wire, host: str) -> None:
    (await push(wire, host=host)).ok(201)


async def test_a_host_may_be_allowed(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    hosts = Hosts(["broker.example ", "", "10.0.0.7", "fe80::1"])
    async with serving(await backend.open(None), hosts=hosts) as wire:
        for host in ("broker.example", "Broker.Example:443", "10.0.0.7:6632", "[FE80::1]", "localhost"):
            assert (await wire.get("/livez", headers={"host": host})).status == 200
        for host in ("x.broker.example", "10.0.0.8", "[fe80::2]"):
            (await wire.get("/livez", headers={"host": host})).refused(403)


async def test_an_address_at_which_a_client_reached_it_is_one_of_its_own(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None), host="0.0.0.0") as wire:
        wire.base = f"http://127.0.0.2:{port(wire)}"
        (await push(wire)).ok(201)


def test_any_host_may_be_allowed() -> None:
    assert Hosts(["*"]).refusal(b"evil.example") is None


@pytest.mark.parametrize("name", ["broker.example:443", "http://broker.example", "*.example", "a b"])
def test_what_is_no_host_cannot_be_allowed(name: str) -> None:
    with pytest.raises(InvalidRequest, match="allowed_hosts has"):
        Hosts([name])


MARKED = [
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"sec_fetch_site": "cross-site", "origin": PAGE},
    {"sec_fetch_site": "same-origin, cross-site"},
    {"origin": PAGE},
    {"origin": "null"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"origin": "http://127.0.0.1:1"},
]


@pytest.mark.parametrize("marks", MARKED, ids=lambda marks: " ".join(marks.values()))
async def test_what_a_page_of_another_site_asks_for_is_refused(wire: Wire, marks: dict[str, str]) -> None:
    await wire.push("orders", 1, 2)
    headers = {name.replace("_", "-"): value for name, value in marks.items()}
    (await push(wire, **marks)).refused(403, "cross_site")
    taken = await wire.get("/api/v1/pop/queue/orders", headers=headers, autoAck="true", batch=9)
    taken.refused(403, "cross_site")
    for method, path in (
        ("DELETE", "/api/v1/resources/queues/orders"),
        ("POST", "/api/v1/retention/run"),
        ("GET", "/admin/queues"),
        ("POST", "/hook/alerts"),
        ("GET", "/internal/api/shared-state/stats"),
    ):
        (await wire.ask(method, path, headers=headers)).refused(403, "cross_site")
    assert len(await wire.pop("orders")) == 2
    assert (await wire.get("/docs", headers=headers)).status == 200, "anybody may link to it"


@pytest.mark.parametrize("marks", [{"sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"}, {"origin": "own"}])
async def test_our_own_pages_and_people_may_ask(wire: Wire, marks: dict[str, str]) -> None:
    given = {name: value.replace("own", wire.base) for name, value in marks.items()}
    (await push(wire, **given)).ok(201)


async def test_pages_of_a_configured_origin_may_ask(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None), cors_origin="https://app.example") as wire:
        answer = await push(wire, sec_fetch_site="cross-site", origin="https://app.example")
        answer.ok(201)
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        (await push(wire, sec_fetch_site="cross-site", origin=PAGE)).refused(403)
        (await push(wire, sec_fetch_site="cross-site")).refused(403)
        preflight = {"origin": "https://app.example", "access-control-request-method": "POST"}
        assert (await wire.ask("OPTIONS", "/api/v1/push", headers=preflight)).status == 204


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data; boundary=x", "application/octet-stream"])
async def test_a_body_of_the_api_says_that_it_is_json(wire: Wire, content_type: str) -> None:
    told = (await push(wire, content_type)).refused(415, "unsupported_media_type")
    assert "application/json" in told["error"]
    if INSTALLED:
        refused = await wire.ask("POST", "/streams/v1/queries", body={}, headers={"content-type": content_type})
        refused.refused(415)
    refused = await wire.ask("POST", "/admin/queues/q/dlq/replay", body={}, headers={"content-type": content_type})
    refused.refused(415)


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
async def test_json_says_so_in_any_case(wire: Wire, content_type: str) -> None:
    (await push(wire, content_type)).ok(201)


async def test_what_curl_sends_by_itself_is_json_unless_a_browser_sends_it(wire: Wire) -> None:
    form = "application/x-www-form-urlencoded"
    (await push(wire, form)).ok(201)
    (await push(wire, form, origin=wire.base)).refused(415)
    (await push(wire, form, sec_fetch_site="same-origin")).refused(415)


async def test_a_head_takes_no_message(wire: Wire) -> None:
    await wire.push("orders", 1, 2)
    for path in ("/api/v1/pop/queue/orders", "/api/v1/pop/queue/orders/partition/Default", "/api/v1/pop"):
        answer = await wire.ask("HEAD", path)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    assert len(await wire.pop("orders")) == 2
    for path in ("/livez", "/api/v1/resources/queues", "/api/v1/resources/queues/orders", "/docs"):
        assert (await wire.ask("HEAD", path)).status == 200


async def test_no_answer_is_kept_or_guessed_at(wire: Wire) -> None:
    await wire.push("orders", 1)
    for path in ("/api/v1/pop/queue/orders", "/api/v1/pop/queue/none", "/livez", "/docs", "/nowhere"):
        answer = await wire.get(path)
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = (await wire.get("/docs")).headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'none'" in policy


async def say(wire: Wire, text: str) -> bytes:
    """Return the answer to a request header alone."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(wire))
    writer.write(text.format(host=f"host: 127.0.0.1:{port(wire)}").replace("\n", "\r\n").encode())
    try:
        return await asyncio.wait_for(reader.read(), SECONDS_MAX)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /api/v1/pop/queue/q?wait=true HTTP/1.1\n{host}\ncontent-length: 33554432\n\n", 400),
        ("GET /api/v1/pop/queue/q?wait=true HTTP/1.1\n{host}\ntransfer-encoding: chunked\n\n", 400),
        ("DELETE /api/v1/resources/queues/q HTTP/1.1\n{host}\ncontent-length: 2\n\n", 400),
        ("POST /nowhere HTTP/1.1\n{host}\ncontent-length: 33554432\n\n", 404),
        ("PUT /api/v1/push HTTP/1.1\n{host}\ncontent-length: 33554432\n\n", 405),
        ("POST /api/v1/configure HTTP/1.1\n{host}\ncontent-length: 33554432\n\n", 413),
        ("POST /api/v1/retention/run HTTP/1.1\n{host}\ncontent-length: 1000000\n\n", 413),
        ("POST /hook/none HTTP/1.1\n{host}\ncontent-length: 33554432\n\n", 413),
        ("POST /api/v1/push HTTP/1.1\n{host}\ncontent-length: 33554433\n\n", 413),
        ("POST /api/v1/push HTTP/1.1\n{host}\ncontent-type: text/plain\ncontent-length: 9\n\n", 415),
        ("POST /api/v1/push HTTP/1.1\nhost: evil.example\ncontent-length: 9\n\n", 403),
        ("POST /api/v1/push HTTP/1.1\n{host}\norigin: http://evil.example\ncontent-length: 9\n\n", 403),
    ],
)
async def test_what_is_refused_whatever_its_body_is_refused_before_that_comes(
    wire: Wire, head: str, status: int
) -> None:
    answer = await say(wire, head)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert b'"code":' in answer


async def test_a_query_of_very_many_parameters_is_refused(wire: Wire) -> None:
    query: dict[str, Any] = {f"x{number}": 1 for number in range(101)}
    (await wire.get("/api/v1/pop/queue/q", **query)).refused(400)
