"""The HTTP server below the routes: limits, deadlines, and disconnecting clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlane.http.server import Limits, Request, Response, Server, json_response
from fairlane.http.server.connection import Connection
from tests.until import SECONDS_MAX

FAST = Limits(
    header_bytes_max=2048,
    target_bytes_max=512,
    body_bytes_max=10_000,
    header_seconds=0.3,
    body_seconds=0.6,
    idle_seconds=0.3,
    connections_max=3,
)


class Service:
    """An app that echoes requests. `/wait` waits until its client disconnects."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.waiting = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        if request.path == b"/nothing":
            return None  # type: ignore[return-value]
        if request.path == b"/large":
            return Response(200, b"x" * 20_000_000)
        if request.path == b"/wait":
            self.waiting.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        told = {"method": request.method, "path": request.path.decode(), "body": request.body.decode()}
        return json_response(told | {"headers": sorted(name.decode() for name in request.headers)})


@asynccontextmanager
async def serving(limits: Limits = FAST) -> AsyncIterator[tuple[Server, Service, int]]:
    service = Service()
    server = Server(service, limits)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, service, port
    finally:
        await server.close(grace_seconds=1)


async def talk(port: int, data: bytes) -> bytes:
    """Send bytes, then read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), SECONDS_MAX)
    finally:
        writer.close()


def get(path: str, *, more: str = "connection: close\r\n") -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n".encode()


async def test_a_request_is_answered_and_the_connection_kept() -> None:
    async with serving() as (_, _, port):
        answer = await talk(port, get("/a", more="") + get("/b"))
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert answer.index(b'"path":"/a"') < answer.index(b'"path":"/b"')


async def test_a_handler_that_gives_no_response_costs_its_request_and_not_the_connection() -> None:
    async with serving() as (_, _, port):
        answer = await talk(port, get("/nothing", more="") + get("/b"))
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b'"path":"/b"' in answer


async def test_bodies_come_whole_in_chunks_or_by_length() -> None:
    async with serving() as (_, _, port):
        by_length = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"
        chunked = (
            b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
            b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
        )
        for request in (by_length, chunked):
            assert b'"body":"hello"' in await talk(port, request)


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with serving() as (_, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi")
        assert b'"body":"hi"' in await reader.readuntil(b"}")
        writer.close()


async def test_head_has_a_length_and_no_body() -> None:
    async with serving() as (_, _, port):
        answer = await talk(port, get("/").replace(b"GET", b"HEAD"))
        assert b"content-length: " in answer
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10001\r\n\r\n", 413),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2711\r\n"
            + b"x" * 10_001
            + b"\r\n0\r\n\r\n",
            413,
        ),
        (b"GET /\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: b\0c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", 400),
        (b"POST /\nHost: x\r\nContent-Length: 2\r\n\r\nhi", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi", 415),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-encoding: identity, br\r\ncontent-length: 2\r\n\r\nhi", 415),
        (b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\nhi", 400),
        (b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (get("/" + "x" * 600), 414),
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(400)) + b"\r\n", 431),
    ],
    ids=[
        "no-http",
        "two-hosts",
        "length-and-chunks",
        "negative",
        "long",
        "long-chunks",
        "http-0.9",
        "endless-chunk",
        "odd-chunk",
        "folded-header",
        "nul-in-header",
        "no-host",
        "no-host-1.0",
        "http-2.0",
        "http-0.9-with-headers",
        "packed",
        "packed-body",
        "packed-body-in-two-ways",
        "chunks-1.0",
        "upgrade-with-body",
        "connect",
        "long-url",
        "long-header",
    ],
)
async def test_what_cannot_be_served_is_refused_and_hung_up_on(request_bytes: bytes, status: int) -> None:
    async with serving() as (_, _, port):
        answer = await talk(port, request_bytes)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:80]
        assert b'"code":' in answer


async def test_a_silent_connection_is_closed() -> None:
    async with serving() as (_, _, port):
        assert await talk(port, b"") == b""


async def test_a_header_that_trickles_is_cut_off() -> None:
    async with serving() as (server, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")

        async def trickle() -> None:
            for number in range(100):
                writer.write(b"a%d: b\r\n" % number)
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        # Bytes that it sends after the close may cost it the answer that explains it.
        with contextlib.suppress(ConnectionResetError):
            assert (await asyncio.wait_for(reader.read(), SECONDS_MAX)).startswith(b"HTTP/1.1 408 ")
        trickling.cancel()
        writer.close()
        assert not server.connections


async def test_a_body_that_never_ends_is_cut_off() -> None:
    async with serving() as (_, _, port):
        answer = await talk(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
        assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_trickles_is_cut_off_long_before_its_time_is_up() -> None:
    async with serving(Limits(body_seconds=600, body_grace_seconds=0.2)) as (server, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10000\r\n\r\n")

        async def trickle() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        # Bytes that it sends after the close may cost it the answer that explains it.
        with contextlib.suppress(ConnectionResetError):
            assert (await asyncio.wait_for(reader.read(), SECONDS_MAX)).startswith(b"HTTP/1.1 408 ")
        trickling.cancel()
        writer.close()
        assert not server.connections


@pytest.mark.parametrize("reads", [0, 1], ids=["never", "slowly"])
async def test_a_client_that_does_not_read_its_answer_is_hung_up_on(reads: int) -> None:
    async with serving(Limits(write_seconds=0.5)) as (server, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(get("/large", more=""))
        assert await reader.read(1) == b"H"
        async with asyncio.timeout(SECONDS_MAX):
            while server.connections:
                await asyncio.sleep(0.1)
                if reads:
                    await reader.read(reads)
        writer.transport.abort()


async def test_an_answer_that_could_not_be_sent_is_told_of() -> None:
    told: list[bool] = []

    async def handler(_request: Request) -> Response:
        for connection in server.connections:
            assert isinstance(connection, Connection)
            assert connection._transport is not None
            connection._transport.close()  # the client left, and its connection is not yet cleaned up
        return Response(200, unsent=lambda: told.append(True))

    server = Server(handler)
    port = await server.start("127.0.0.1", 0)
    assert await talk(port, get("/")) == b""
    await server.close(grace_seconds=1)
    assert told == [True]


async def test_an_idle_connection_is_closed_after_its_answer() -> None:
    async with serving() as (_, _, port):
        assert b"200 OK" in await talk(port, get("/", more=""))


async def test_a_handler_whose_client_went_away_is_cancelled() -> None:
    async with serving() as (_, service, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/wait"))
        await asyncio.wait_for(service.waiting.wait(), SECONDS_MAX)
        writer.close()
        await asyncio.wait_for(service.cancelled.wait(), SECONDS_MAX)


async def test_a_waiting_request_has_no_deadline_of_the_servers() -> None:
    async with serving() as (_, service, port):
        answer = asyncio.create_task(talk(port, get("/wait")))
        await asyncio.wait_for(service.waiting.wait(), SECONDS_MAX)
        await asyncio.sleep(1.2)  # longer than every deadline of a client
        service.release.set()
        assert b"200 OK" in await answer


async def test_connections_beyond_the_limit_are_told_to_come_again() -> None:
    async with serving(Limits(connections_max=3)) as (_, _, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        answer = await talk(port, b"")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        for _, writer in held:
            writer.close()


async def test_a_draining_server_answers_what_is_in_flight_and_takes_nothing_new() -> None:
    async with serving() as (server, service, port):
        answer = asyncio.create_task(talk(port, get("/wait", more="")))
        await asyncio.wait_for(service.waiting.wait(), SECONDS_MAX)
        server.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        service.release.set()
        assert b"connection: close" in await answer


async def test_past_the_cap_of_bytes_a_request_is_refused_before_its_body_is_read() -> None:
    async with serving(Limits(inflight_bytes_max=1_000)) as (server, service, port):
        first = asyncio.create_task(
            talk(
                port, b"POST /wait HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 800\r\n\r\n" + b"a" * 800
            )
        )
        await service.waiting.wait()
        assert server.budget.used == 800
        # The header alone is answered, because nothing of the body was sent yet.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 300\r\n\r\n")
        refused = await asyncio.wait_for(reader.read(), SECONDS_MAX)
        assert refused.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 1" in refused
        writer.write(b"b" * 300)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        # Requests with a small body or none are still served.
        assert (await talk(port, b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).startswith(
            b"HTTP/1.1 200"
        )
        service.release.set()
        assert (await first).startswith(b"HTTP/1.1 200")
        assert server.budget.used == 0


async def test_the_bytes_of_a_client_that_went_away_are_not_held() -> None:
    async with serving(Limits(inflight_bytes_max=1_000)) as (server, _, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n" + b"a" * 500)
        await writer.drain()
        async with asyncio.timeout(SECONDS_MAX):
            while server.budget.used != 500:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            writer.close()
            await writer.wait_closed()
            while server.budget.used != 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
