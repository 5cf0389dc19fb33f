"""Misbehaving clients: their cost is bounded, and they leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.http.server import BACKLOG, Limits, Server, open_sockets
from tests.http.test_server import FAST, Service, get, serving, talk
from tests.until import SECONDS_MAX


async def test_what_follows_a_request_and_is_none_is_refused_after_its_answer() -> None:
    async with serving() as (_, service, port):
        post = b"POST /wait HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nfour and more"
        answer = asyncio.create_task(talk(port, post))
        await service.waiting.wait()
        service.release.set()
        first, second = (await answer).split(b"HTTP/1.1 ")[1:]
        assert first.startswith(b"200 ")
        assert b'"body":"fo"' in first
        assert second.startswith(b"400 ")


async def test_another_protocol_is_not_gone_over_to() -> None:
    async with serving() as (_, _, port):
        asked = get("/a", more="connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n")
        answer = await talk(port, asked * 100 + get("/b"))
        assert answer.count(b"HTTP/1.1 200 OK") == 101
        assert b'"path":"/b"' in answer


async def test_a_blank_behind_a_length_is_none_of_it() -> None:
    async with serving() as (_, _, port):
        post = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2 \t\r\n\r\nhi"
        assert b'"body":"hi"' in await talk(port, post)


async def test_a_client_of_http_1_0_is_not_told_to_go_on() -> None:
    async with serving() as (_, _, port):
        post = b"POST / HTTP/1.0\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi"
        assert (await talk(port, post)).startswith(b"HTTP/1.1 200 OK")


async def test_a_client_that_asks_first_is_told_to_go_on_when_it_has_its_earlier_answer() -> None:
    async with serving() as (_, service, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/wait", more=""))
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        await service.waiting.wait()
        service.release.set()
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 OK")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi")
        assert b'"body":"hi"' in await reader.readuntil(b"}")
        writer.close()


CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_trailer_is_no_header() -> None:
    async with serving() as (_, _, port):
        answer = await talk(port, CHUNKED + b"2\r\nhi\r\n0\r\nx-signature: abc\r\nhost: y\r\n\r\n")
        assert b'"body":"hi"' in answer
        assert b"x-signature" not in answer


@pytest.mark.parametrize(
    ("beginning", "part"),
    [
        (b"2\r\nhi\r\n0\r\nx-bomb: ", b"a" * 10_000),
        (b"2;", b"a" * 10_000),
        (b"", b"1\r\nx\r\n" * 1000),
    ],
    ids=["trailer", "extension", "chunks of a byte"],
)
async def test_what_frames_a_body_is_bounded(beginning: bytes, part: bytes) -> None:
    async with serving(Limits()) as (server, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED + beginning)
        answer = asyncio.create_task(reader.readuntil(b"\r\n"))
        for _ in range(1000):
            if answer.done():
                break
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        assert answer.done(), "it goes on reading"
        assert answer.result() == b"HTTP/1.1 400 Bad Request\r\n"
        assert server.budget.used == 0
        writer.transport.abort()


async def test_a_body_of_many_small_chunks_is_held_once() -> None:
    async with serving(Limits()) as (server, service, port):
        size = 20 * 5000
        post = CHUNKED.replace(b"/ ", b"/wait ") + b"14\r\naaaaaaaaaaaaaaaaaaaa\r\n" * 5000 + b"0\r\n\r\n"
        answer = asyncio.create_task(talk(port, post))
        await asyncio.wait_for(service.waiting.wait(), SECONDS_MAX)
        assert server.budget.used == size
        service.release.set()
        assert b"a" * size in await answer


async def test_a_body_that_stopped_behind_a_waiting_request_is_let_go_of_in_time() -> None:
    async with serving() as (server, service, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/wait", more=""))
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n" + b"x" * 500)
        async with asyncio.timeout(SECONDS_MAX):
            while server.budget.used != 500:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            while server.budget.used:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        service.release.set()
        answers = await asyncio.wait_for(reader.read(), SECONDS_MAX)
        writer.close()
        assert answers.index(b"HTTP/1.1 200 ") < answers.index(b"HTTP/1.1 408 ")


async def test_a_large_body_is_not_held_behind_a_waiting_request() -> None:
    async with serving(Limits(pipelined_bytes_max=1000)) as (server, service, port):
        behind = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1001\r\n\r\n" + b"x" * 1001
        answer = asyncio.create_task(talk(port, get("/wait", more="") + behind))
        await service.waiting.wait()
        assert server.budget.used == 0
        service.release.set()
        answers = await answer
        assert answers.index(b"HTTP/1.1 200 ") < answers.index(b"HTTP/1.1 429 ")


async def test_answers_that_nobody_reads_are_held_in_the_same_budget_as_requests() -> None:
    async with serving(Limits(inflight_bytes_max=40_000_000)) as (server, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(get("/large", more=""))
        assert await reader.read(1) == b"H"
        assert server.budget.used > 20_000_000
        refused = await talk(port, b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 429 ")
        small = await talk(port, b"POST /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi")
        assert small.startswith(b"HTTP/1.1 200 ")
        writer.transport.abort()
        async with asyncio.timeout(SECONDS_MAX):
            while server.budget.used:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Disable garbage collection, so that cycles stay for as long as they may in a broker."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


HANGS_UP = {
    "while it waits": get("/wait"),
    "in a body": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n" + b"x" * 4000,
    "in a header": b"GET / HTTP/1.1\r\nhost: x\r\n",
    "with more behind": get("/wait", more="") + b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody",
    "with an answer unread": get("/large", more=""),
    "refused": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 999999\r\n\r\n",
    "no http": b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("how", HANGS_UP)
async def test_nothing_is_left_of_a_client_that_hung_up(how: str) -> None:
    async with serving(FAST) as (server, _, port):
        with no_collector():
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(SECONDS_MAX):
                while not server.connections:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                [known] = map(weakref.ref, server.connections)
                writer.write(HANGS_UP[how])
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.transport.abort()
                while known() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        assert server.budget.used == 0
        assert not server.connections


async def test_nothing_is_left_of_a_client_that_was_too_slow() -> None:
    async with serving(FAST) as (server, _, port):
        with no_collector():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(SECONDS_MAX):
                while not server.connections:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                [known] = map(weakref.ref, server.connections)
                writer.write(HANGS_UP["in a header"])
                assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
                writer.close()
                await writer.wait_closed()
                while known() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)


async def test_as_many_connections_may_wait_as_the_socket_was_opened_with() -> None:
    sockets = open_sockets("127.0.0.1", 0)
    server = Server(Service())
    await server.listen(sockets)
    # For a listening socket the kernel reports the length of its queue in this field.
    *_, longest = struct.unpack_from("8x6I", sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))
    assert longest == min(BACKLOG, int(await asyncio.to_thread(Path("/proc/sys/net/core/somaxconn").read_text)))
    await server.close(grace_seconds=1)
