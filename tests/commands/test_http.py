"""Commands that make HTTP calls."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import time

import msgspec
import pytest

from fairlane.commands.http import STANDARD, HttpExecutor
from fairlane.errors import CommandFailed
from fairlane.model.limits import RESULT_BYTES_MAX
from fairlane.outbound.addresses import Address, Allowed
from fairlane.outbound.client import ANSWER_BYTES_MAX, OutboundClient
from fairlane.spec import ir
from fairlane.webhooks.signatures import verify
from tests.commands.conftest import HOST, LOOPBACK, Answers, Certificates, Serving, said

KEY = b"0123456789abcdef0123456789abcdef"
INPUT = b'{"title":"db is down"}'
LOCAL = Allowed.parse(["127.0.0.1"])


def executor(url: str, client: OutboundClient) -> HttpExecutor:
    return HttpExecutor(ir.HttpRun(method="POST", url=url), KEY, client)


async def called(answers: Answers, *, key: str = "k-1", seconds: float = 10.0) -> dict[str, object]:
    """Return the result of one call."""
    client = OutboundClient(LOCAL, seconds=seconds)
    try:
        result = await executor(answers.url, client).run("Incident.Create", INPUT, idempotency_key=key)
    finally:
        await client.close()
    return dict(msgspec.json.decode(result))


async def test_the_input_is_sent_signed_and_the_answer_is_the_result(serving: Serving) -> None:
    async with serving(said(201, b'{"id": 7}')) as answers:
        result = await called(answers)
    assert (result["status"], result["body"]) == (201, {"id": 7})
    assert isinstance(result["duration_ms"], float)
    [asked] = answers.asked
    assert (asked.line, asked.body) == ("POST /api HTTP/1.1", INPUT)
    assert asked.headers["host"] == f"127.0.0.1:{answers.port}"
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["webhook-id"] == asked.headers["idempotency-key"] == "k-1"
    headers = {name.encode(): value.encode() for name, value in asked.headers.items()}
    assert verify(STANDARD, [KEY], headers, asked.body, now=time.time()) is None
    assert verify(STANDARD, [KEY], headers, asked.body + b" ", now=time.time()) == "mismatch"


@pytest.mark.parametrize("key", ["a.b", "a\r\nX-Evil: 1", "ключ", "k" * 256, ""])
async def test_a_key_that_no_header_can_hold_goes_as_its_hash(serving: Serving, key: str) -> None:
    async with serving(said(200)) as answers:
        await called(answers, key=key)
        await called(answers, key=key)
    first, second = (asked.headers["webhook-id"] for asked in answers.asked)
    assert first == second
    assert len(first) == 64
    assert "x-evil" not in answers.asked[0].headers


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 451])
async def test_a_client_error_is_the_end(serving: Serving, status: int) -> None:
    async with serving(said(status, b"no such project")) as answers:
        with pytest.raises(CommandFailed, match=f"answered {status}: no such project") as failed:
            await called(answers)
    assert not failed.value.retryable


@pytest.mark.parametrize("status", [301, 302, 304, 307, 408, 425, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again_when_the_server_asks_for_it(serving: Serving, status: int) -> None:
    async with serving(said(status, b"", "Retry-After: 17", "Location: http://169.254.169.254/")) as answers:
        with pytest.raises(CommandFailed, match=f"answered {status}") as failed:
            await called(answers)
    assert (failed.value.retryable, failed.value.retry_after) == (True, 17.0)
    assert len(answers.asked) == 1  # no redirect is followed


async def test_a_server_cannot_ask_for_more_than_an_hour(serving: Serving) -> None:
    async with serving(said(503, b"", "Retry-After: 1e300")) as answers:
        with pytest.raises(CommandFailed) as failed:
            await called(answers)
    assert failed.value.retry_after == 3600.0


async def _silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.3)


async def _drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(10):
        writer.write(b"x")
        await asyncio.sleep(0.03)


async def _flood(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(64):
        writer.write(b"x" * ANSWER_BYTES_MAX)
        await writer.drain()


async def _headers_without_end(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n")
    await writer.drain()


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    return


@pytest.mark.parametrize("misbehave", [_silence, _drip, _headers_without_end, _hang_up])
async def test_a_server_that_misbehaves_is_a_failed_attempt(serving: Serving, misbehave: object) -> None:
    async with serving(misbehave) as answers:
        with pytest.raises(CommandFailed, match="no answer") as failed:
            await called(answers, seconds=0.15)
    assert failed.value.retryable


async def test_an_answer_without_end_is_cut_and_not_kept(serving: Serving) -> None:
    async with serving(_flood) as answers:
        assert set(await called(answers)) == {"status", "duration_ms"}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"OK", b'{"a": ', b"\xff", b"[" * 128 + b"]" * 128, b'"' + b"x" * RESULT_BYTES_MAX + b'"'),
        gzip.compress(b"0" * 50_000_000),
    ],
)
async def test_an_answer_that_is_no_json_or_too_large_is_done_all_the_same(serving: Serving, body: bytes) -> None:
    async with serving(said(200, body, "Content-Encoding: gzip")) as answers:
        assert set(await called(answers)) == {"status", "duration_ms"}


async def test_connections_are_kept_and_one_that_the_server_gave_up_is_made_anew(serving: Serving) -> None:
    async def last(writer: asyncio.StreamWriter) -> None:
        writer.write(said(200))  # closes the connection without announcing it

    async with serving(said(200), last, said(204)) as answers:
        client = OutboundClient(LOCAL)
        for _ in range(3):
            await executor(answers.url, client).run("C", INPUT, idempotency_key="k")
            await asyncio.sleep(0.01)
        await client.close()
    assert (len(answers.asked), answers.connections) == (3, 2)


async def test_nobody_there_is_a_failed_attempt(serving: Serving) -> None:
    async with serving(said(200)) as answers:
        pass
    with pytest.raises(CommandFailed, match="no answer") as failed:
        await called(answers)
    assert failed.value.retryable


def looked_up(*rounds: list[str]) -> tuple[list[str], OutboundClient]:
    """The host names that were resolved, and a client for which they resolve to these addresses, round after round."""
    names: list[str] = []
    left = [[ipaddress.ip_address(text) for text in addresses] for addresses in rounds]

    async def lookup(host: str) -> list[Address]:
        names.append(host)
        return left.pop(0) if len(left) > 1 else left[0]

    return names, OutboundClient(lookup=lookup)


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["169.254.169.254"]]
)
async def test_a_name_that_leads_inside_is_not_called(serving: Serving, addresses: list[str]) -> None:
    async with serving(said(200)) as answers:
        names, client = looked_up(addresses)
        with pytest.raises(CommandFailed, match="not public") as refused:
            await executor("https://rebound.example/", client).run("C", INPUT, idempotency_key="k")
        await client.close()
    assert not refused.value.retryable
    assert (names, answers.connections) == (["rebound.example"], 0)


async def test_a_name_is_looked_up_once_and_a_later_answer_is_judged_again() -> None:
    """DNS rebinding: the name resolves to a public address when checked, and to an internal one when connecting."""
    names, client = looked_up([], ["127.0.0.1"])
    with pytest.raises(CommandFailed, match="no answer") as failed:
        await executor("https://rebound.example/", client).run("C", INPUT, idempotency_key="k")
    assert (failed.value.retryable, names) == (True, ["rebound.example"])
    with pytest.raises(CommandFailed, match="not public"):
        await executor("https://rebound.example/", client).run("C", INPUT, idempotency_key="k")
    await client.close()
    assert names == ["rebound.example"] * 2


async def test_the_judged_address_is_called_by_its_name(serving: Serving, certificates: Certificates) -> None:
    """Host header and SNI name the host of the URL, and the certificate must be for that name."""

    async def lookup(host: str) -> list[Address]:
        return [LOOPBACK]

    async with serving(said(200), trust=certificates.server) as answers:
        allowed = Allowed.parse([f"{HOST}:{answers.port}", f"other.example:{answers.port}"])
        client = OutboundClient(allowed, lookup=lookup, trust=certificates.client)
        url = f"https://{HOST}:{answers.port}/api"
        await executor(url, client).run("C", INPUT, idempotency_key="k")
        with pytest.raises(CommandFailed, match="no answer") as failed:
            await executor(url.replace(HOST, "other.example"), client).run("C", INPUT, idempotency_key="k")
        await client.close()
        stranger = OutboundClient(allowed, lookup=lookup)
        with pytest.raises(CommandFailed, match="no answer"):
            await executor(url, stranger).run("C", INPUT, idempotency_key="k")
        await stranger.close()
    assert failed.value.retryable
    [asked] = answers.asked
    assert (asked.headers["host"], asked.sni) == (f"{HOST}:{answers.port}", HOST)


async def test_no_proxy_of_the_environment_is_used(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(said(200)) as answers:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert (await called(answers))["status"] == 200
