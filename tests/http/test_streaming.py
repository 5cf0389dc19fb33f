"""Endless answers below the routes: which clients get one, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlane.http.server import Limits, Request, Response, Server
from tests.until import SECONDS_MAX, until


class Stream:
    """An app that sends a part whenever `more` is set."""

    def __init__(self, part: bytes = b"part\n") -> None:
        self.part = part
        self.more = asyncio.Event()
        self.begun = self.made = 0
        self.ended = asyncio.Event()
        self.fails = False

    async def __call__(self, request: Request) -> Response:
        if request.path == b"/plain":
            return Response(200, b"{}")
        return Response(200, content_type=b"text/plain", stream=self._parts())

    async def _parts(self) -> AsyncGenerator[bytes]:
        self.begun += 1
        try:
            while True:
                await self.more.wait()
                if self.fails:
                    raise ValueError("no more")
                self.made += 1
                yield self.part
                if len(self.part) < 100:
                    self.more.clear()
        finally:
            self.ended.set()


@asynccontextmanager
async def serving(stream: Stream, limits: Limits | None = None) -> AsyncIterator[tuple[Server, int]]:
    server = Server(stream, limits)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close(grace_seconds=1)


@asynccontextmanager
async def asking(port: int, text: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    writer.write(text.replace("\n", "\r\n").encode())
    try:
        async with asyncio.timeout(30):
            yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_parts_come_one_by_one_and_the_end_of_the_connection_ends_them(version: str) -> None:
    stream = Stream()
    async with serving(stream) as (server, port), asking(port, f"GET / HTTP/{version}\nhost: x\n\n") as (reader, _):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" in head
        assert b"content-length" not in head
        assert b"transfer-encoding" not in head
        for _ in range(3):
            stream.more.set()
            assert await reader.readline() == b"part\n"
        assert server.active == 0
        server.stop_listening()
        assert await reader.read() == b""
        await stream.ended.wait()


async def test_what_came_before_on_its_connection_is_answered_first_and_nothing_behind_it() -> None:
    stream = Stream()
    text = "GET /plain HTTP/1.1\nhost: x\n\nGET / HTTP/1.1\nhost: x\n\nGET /plain HTTP/1.1\nhost: x\n\n"
    async with serving(stream) as (server, port), asking(port, text) as (reader, _):
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"\r\n\r\n")
        stream.more.set()
        assert await reader.readline() == b"part\n"
        server.stop_listening()
        assert await reader.read() == b""


async def test_a_head_does_not_begin_it_and_the_connection_stays() -> None:
    stream = Stream()
    text = "HEAD / HTTP/1.1\nhost: x\n\nGET /plain HTTP/1.1\nhost: x\n\n"
    async with serving(stream) as (_, port), asking(port, text) as (reader, _):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"text/plain" in head
        assert b"connection: close" not in head
        assert b"200 OK" in await reader.readuntil(b"{}")
        assert not stream.begun


async def test_it_ends_when_its_client_leaves() -> None:
    stream = Stream()
    async with serving(stream) as (server, port):
        async with asking(port, "GET / HTTP/1.1\nhost: x\n\n") as (reader, _):
            await reader.readuntil(b"\r\n\r\n")
            await until(lambda: stream.begun)
        await asyncio.wait_for(stream.ended.wait(), SECONDS_MAX)
        await until(lambda: not server.connections)


async def test_for_a_client_that_does_not_read_little_is_made_and_then_it_is_hung_up_on() -> None:
    stream = Stream(b"x" * 100_000)
    stream.more.set()
    async with (
        serving(stream, Limits(write_seconds=0.5)) as (server, port),
        asking(port, "GET / HTTP/1.1\nhost: x\n\n") as (_, writer),
    ):
        await until(lambda: stream.made)
        await until(lambda: not server.connections)
        await asyncio.wait_for(stream.ended.wait(), SECONDS_MAX)
        assert stream.made < 1000  # as much as the system buffers, and one part more
        assert server.budget.used == 0
        writer.transport.abort()


async def test_a_stream_may_be_silent_for_longer_than_every_deadline() -> None:
    stream = Stream()
    limits = Limits(header_seconds=0.2, idle_seconds=0.2, body_seconds=0.2, write_seconds=0.2)
    async with serving(stream, limits) as (_, port), asking(port, "GET / HTTP/1.1\nhost: x\n\n") as (reader, _):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(1.2)
        stream.more.set()
        assert await reader.readline() == b"part\n"


async def test_one_that_fails_ends() -> None:
    stream = Stream()
    stream.fails = True
    stream.more.set()
    async with serving(stream) as (server, port), asking(port, "GET / HTTP/1.1\nhost: x\n\n") as (reader, _):
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""
        await until(lambda: not server.connections)
