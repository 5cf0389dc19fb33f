"""Login of the dashboard: a cookie that no script reads and no other site sends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conformance.backends import SqliteBackend
from tests.http.wire import Wire, serving
from tests.until import until


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None)) as wire:
        yield wire


async def login(wire: Wire, key: str, **headers: str) -> tuple[int, Any, SimpleCookie]:
    """The status, the body and the cookies of a login, as a browser without any before gets them."""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(f"{wire.base}/api/v1/login", json={"key": key}, headers=headers) as answer,
    ):
        return answer.status, await answer.json(), answer.cookies


async def made(wire: Wire, **options: Any) -> str:
    return str((await wire.post("/api/v1/keys", body={"name": "root", **options})).ok(201)["key"])


async def test_a_login_leaves_a_cookie_that_no_script_reads_and_no_other_site_sends(wire: Wire) -> None:
    key = await made(wire, role="admin")
    status, me, cookies = await login(wire, f"  {key}\n")
    cookie = cookies["fairlane_key"]
    assert (status, me["name"], cookie.value) == (200, "key:root", key)
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
    assert (cookie["secure"], cookie["max-age"], cookie["domain"]) == ("", "", "")  # until the browser is closed
    (await wire.get("/api/v1/whoami")).refused(401, "unauthenticated")
    answer = (await wire.get("/api/v1/whoami", headers={"cookie": f"theme=dark; fairlane_key={key}"})).ok()
    assert answer["name"] == "key:root"


async def test_the_cookie_of_a_page_by_https_is_sent_by_https_alone(wire: Wire) -> None:
    key, host = await made(wire, role="admin"), wire.base.partition("://")[2]
    _, _, cookies = await login(wire, key, origin=f"https://{host}")
    assert cookies["fairlane_key"]["secure"] is True


async def test_a_login_that_is_not_good_is_refused_and_noted(wire: Wire) -> None:
    key = await made(wire, role="admin")
    for wrong in (key[:-1], "fl_" + "0" * 72, "x", "é" * 10):
        status, _, cookies = await login(wire, wrong)
        assert (status, dict(cookies)) == (401, {}), wrong
    status, _, _ = await login(wire, "a.b." + "c" * 5000)
    assert status == 400

    async def noted() -> bool:
        """Refusals are stored beside the requests."""
        found = (await wire.get("/api/v1/audit", headers={"authorization": f"Bearer {key}"})).ok()["entries"]
        logins = [(one["caller"], one["outcome"]) for one in found if one["action"] == "login"]
        return logins == [("nobody", "refused")] * 4

    await until(noted)


async def test_a_page_of_another_site_cannot_log_anybody_in_or_use_the_cookie(wire: Wire) -> None:
    key = await made(wire, role="admin")
    for headers in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        status, _, cookies = await login(wire, key, **headers)
        assert (status, dict(cookies)) == (403, {}), headers
        sent = {**headers, "cookie": f"fairlane_key={key}"}
        (await wire.get("/api/v1/pop/queue/orders", headers=sent)).refused(403, "cross_site")


async def test_a_cookie_lets_in_for_as_long_as_its_key_does(wire: Wire) -> None:
    key = await made(wire, role="admin")
    sent = {"cookie": f"fairlane_key={key}"}
    (await wire.get("/api/v1/whoami", headers=sent)).ok()
    async with (
        aiohttp.ClientSession() as session,
        session.delete(f"{wire.base}/api/v1/keys/root", headers=sent) as gone,
    ):
        assert gone.status == 200
    (await wire.get("/api/v1/whoami", headers=sent)).refused(401, "unauthenticated")


async def test_a_logout_lets_the_browser_forget(wire: Wire) -> None:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(f"{wire.base}/api/v1/logout", json={}) as answer,
    ):
        cookie = answer.cookies["fairlane_key"]
    assert (answer.status, cookie.value, cookie["max-age"]) == (204, "", "0")
