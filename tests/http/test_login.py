"""Login of the dashboard: a cookie that scripts cannot read and other sites cannot send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlane.broker.credentials import SESSION_SECONDS
from tests.clock import ManualClock
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
    """Log in as a browser without cookies. Returns the status, the body and the new cookies."""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(f"{wire.base}/api/v1/login", json={"key": key}, headers=headers) as answer,
    ):
        return answer.status, await answer.json(), answer.cookies


async def made(wire: Wire, **options: Any) -> str:
    return str((await wire.post("/api/v1/keys", body={"name": "root", **options})).ok(201)["key"])


def cookie_of(cookies: SimpleCookie) -> dict[str, str]:
    """Return the header that a browser with these cookies sends."""
    return {"cookie": "; ".join(f"{name}={one.value}" for name, one in cookies.items())}


async def test_a_login_leaves_a_cookie_that_no_script_reads_and_no_other_site_sends(wire: Wire) -> None:
    key = await made(wire, role="admin")
    status, me, cookies = await login(wire, f"  {key}\n")
    cookie = cookies["fairlane_session"]
    assert (status, me["name"]) == (200, "key:root")
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
    assert (cookie["secure"], cookie["max-age"], cookie["domain"]) == ("", "", "")  # until the browser is closed
    (await wire.get("/api/v1/whoami")).refused(401, "unauthenticated")
    answer = (await wire.get("/api/v1/whoami", headers={"cookie": f"theme=dark; fairlane_session={cookie.value}"})).ok()
    assert answer["name"] == "key:root"


async def test_the_cookie_is_no_credential_and_no_credential_is_a_cookie(wire: Wire) -> None:
    key = await made(wire, role="admin")
    _, _, cookies = await login(wire, key)
    session_id = cookies["fairlane_session"].value
    assert key not in session_id
    for bearer in (session_id, f"Bearer {session_id}"):
        (await wire.get("/api/v1/whoami", headers={"authorization": bearer})).refused(401, "unauthenticated")
    for name in ("fairlane_session", "fairlane_key"):
        (await wire.get("/api/v1/whoami", headers={"cookie": f"{name}={key}"})).refused(401, "unauthenticated")


async def test_a_session_makes_keys_that_outlive_it(wire: Wire) -> None:
    key = await made(wire, role="admin")
    _, _, cookies = await login(wire, key)
    (await wire.ask("POST", "/api/v1/keys", body={"name": "other", "role": "admin"}, headers=cookie_of(cookies))).ok(
        201
    )


async def test_a_cookie_of_another_program_on_this_host_does_not_hide_the_session(wire: Wire) -> None:
    key = await made(wire, role="admin")
    _, _, cookies = await login(wire, key)
    sent = {"cookie": f"fairlane_session=planted; {cookie_of(cookies)['cookie']}"}
    assert (await wire.get("/api/v1/whoami", headers=sent)).ok()["name"] == "key:root"


async def test_the_cookie_of_a_page_by_https_is_sent_by_https_and_to_this_host_alone(wire: Wire) -> None:
    key, host = await made(wire, role="admin"), wire.base.partition("://")[2]
    _, _, cookies = await login(wire, key, origin=f"https://{host}")
    cookie = cookies["__Host-fairlane_session"]
    assert (cookie["secure"], cookie["path"], cookie["domain"]) == (True, "/", "")
    (await wire.get("/api/v1/whoami", headers=cookie_of(cookies))).ok()


async def test_a_login_that_is_not_good_is_refused_and_noted(wire: Wire) -> None:
    key = await made(wire, role="admin")
    for wrong in (key[:-1], "fl_" + "0" * 72, "x", "é" * 10):
        status, _, cookies = await login(wire, wrong)
        assert (status, dict(cookies)) == (401, {}), wrong

    async def noted() -> bool:
        """Return True once the refusals are stored, which may be after the answers."""
        found = (await wire.get("/api/v1/audit", headers={"authorization": f"Bearer {key}"})).ok()["entries"]
        logins = [(one["caller"], one["outcome"]) for one in found if one["action"] == "login"]
        return logins == [("nobody", "refused")] * 4

    await until(noted)


async def test_a_page_of_another_site_cannot_log_anybody_in_or_use_the_cookie(wire: Wire) -> None:
    key = await made(wire, role="admin")
    _, _, good = await login(wire, key)
    for headers in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        status, _, cookies = await login(wire, key, **headers)
        assert (status, dict(cookies)) == (403, {}), headers
        sent = {**headers, **cookie_of(good)}
        (await wire.get("/api/v1/pop/queue/orders", headers=sent)).refused(403, "cross_site")


async def test_a_link_from_outside_the_browser_does_not_use_the_cookie(wire: Wire) -> None:
    key = await made(wire, role="admin")
    _, _, cookies = await login(wire, key)
    for site, status in (("none", 401), ("same-origin", 200)):
        sent = {"sec-fetch-site": site, **cookie_of(cookies)}
        assert (await wire.get("/api/v1/whoami", headers=sent)).status == status, site


async def test_a_session_ends_with_its_key(wire: Wire) -> None:
    key = await made(wire, role="admin")
    _, _, cookies = await login(wire, key)
    sent = cookie_of(cookies)
    (await wire.get("/api/v1/whoami", headers=sent)).ok()
    async with (
        aiohttp.ClientSession() as session,
        session.delete(f"{wire.base}/api/v1/keys/root", headers=sent) as gone,
    ):
        assert gone.status == 200
    (await wire.get("/api/v1/whoami", headers=sent)).refused(401, "unauthenticated")


async def test_a_session_ends_with_the_secret_it_was_opened_with(wire: Wire) -> None:
    key = await made(wire, role="admin")
    _, _, cookies = await login(wire, key)
    sent = cookie_of(cookies)
    (await wire.ask("POST", "/api/v1/keys/root/rotate", body={"graceSeconds": 0}, headers=sent)).ok()
    (await wire.get("/api/v1/whoami", headers=sent)).refused(401, "unauthenticated")


async def test_a_session_ends_by_itself(tmp_path: Path) -> None:
    backend, clock = SqliteBackend(tmp_path / "queue.db"), ManualClock()
    await backend.make()
    async with serving(await backend.open(clock)) as wire:
        key = await made(wire, role="admin")
        _, _, cookies = await login(wire, key)
        (await wire.get("/api/v1/whoami", headers=cookie_of(cookies))).ok()
        clock.advance(SESSION_SECONDS + 1)
        (await wire.get("/api/v1/whoami", headers=cookie_of(cookies))).refused(401, "unauthenticated")
        (await wire.get("/api/v1/whoami", headers={"authorization": f"Bearer {key}"})).ok()


async def test_a_logout_ends_the_session_and_lets_the_browser_forget_it(wire: Wire) -> None:
    key = await made(wire, role="admin")
    _, _, one = await login(wire, key)
    _, _, other = await login(wire, key)
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(f"{wire.base}/api/v1/logout", json={}, headers=cookie_of(one)) as answer,
    ):
        cookie = answer.cookies["fairlane_session"]
    assert (answer.status, cookie.value, cookie["max-age"]) == (204, "", "0")
    (await wire.get("/api/v1/whoami", headers=cookie_of(one))).refused(401, "unauthenticated")
    (await wire.get("/api/v1/whoami", headers=cookie_of(other))).ok()
