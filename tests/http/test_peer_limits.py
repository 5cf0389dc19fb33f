"""While one address uses as much as it can get, pushes and pops from another continue."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from fairlane.cli.processes.listeners import limits
from fairlane.config import Settings
from fairlane.http.server import Proxies
from tests.conformance.backends import SqliteBackend
from tests.http.wire import Wire, serving
from tests.until import SECONDS_MAX, until

MIB = 1024 * 1024
STRANGER, PROXY = "127.0.0.2", "127.0.0.3"
"""Other loopback addresses of this machine. Only the usual one is exempt from the share."""
SETTINGS = Settings(connections_max=40, polls_max=20, inflight_bytes_max=4 * MIB)
CONNECTIONS, POLLS = 10, 5
LARGE = 3 * MIB // 4
"""Size of a body of which one fits into a share, and two do not."""
POLL = b"GET /api/v1/pop/queue/empty?wait=true&timeout=600000 HTTP/1.1\r\nhost: localhost\r\n%b\r\n"


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(
        await backend.open(None), polls_max=SETTINGS.polls_max, limits=limits(SETTINGS), proxies=Proxies([PROXY])
    ) as wire:
        yield wire
        await until(lambda: wire.app.server is not None and not wire.app.broker.process.budget.used)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Stranger:
    """A client that opens connections from one address and sends on them."""

    def __init__(self, wire: Wire, address: str) -> None:
        self._runner = urlsplit(wire.base).port
        self._address = address
        self.streams: list[Stream] = []

    async def send(self, data: bytes, count: int) -> list[Stream]:
        opened = []
        for _ in range(count):
            # A small receive buffer: what is not read stays with the broker.
            connected = socket.socket()
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connected.setblocking(False)
            connected.bind((self._address, 0))
            await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", self._runner))
            stream = await asyncio.open_connection(sock=connected, limit=1024)
            stream[1].write(data)
            opened.append(stream)
        self.streams += opened
        return opened

    def close(self) -> None:
        for _, writer in self.streams:
            writer.transport.abort()


@asynccontextmanager
async def stranger(wire: Wire, address: str = STRANGER) -> AsyncIterator[Stranger]:
    with contextlib.closing(Stranger(wire, address)) as found:
        yield found
    await asyncio.sleep(0)


async def statuses(streams: list[Stream]) -> list[int]:
    """Return the status of the first answer on each connection."""
    found = []
    for reader, _ in streams:
        found.append(int((await asyncio.wait_for(reader.readuntil(b"\r\n"), SECONDS_MAX)).split(b" ")[1]))
    return found


async def goes_on(wire: Wire) -> None:
    """Check that small and large requests from another address are served meanwhile."""
    await wire.push("others", {"n": 1})
    await wire.push("others", "x" * LARGE)
    while found := await wire.pop("others", batch=1):
        await wire.ack(found)
    assert (await wire.get("/api/v1/pop/queue/nothing", wait="true", timeout=20)).status == 204


async def test_of_connections(wire: Wire) -> None:
    live = wire.app.server
    assert live is not None
    async with stranger(wire) as one:
        await one.send(b"", CONNECTIONS)
        await until(lambda: len(live.connections) >= CONNECTIONS)
        refused = await one.send(b"", 30)
        assert await statuses(refused) == [503] * 30
        await goes_on(wire)
    await until(lambda: len(live.connections) <= 2)
    async with stranger(wire) as again:
        livez = await again.send(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n", CONNECTIONS)
        assert await statuses(livez) == [200] * CONNECTIONS, "what left is free again"


@pytest.mark.parametrize("by_proxy", [False, True], ids=["direct", "proxied"])
async def test_of_polls(wire: Wire, by_proxy: bool) -> None:
    """Clients behind a trusted proxy are counted by their own address. The proxy's connections are not counted."""
    live = wire.app.server
    assert live is not None
    async with stranger(wire, PROXY if by_proxy else STRANGER) as one:
        poll = POLL % (b"x-forwarded-for: 6.6.6.6, 203.0.113.9\r\n" if by_proxy else b"")
        await one.send(poll, POLLS)
        await until(lambda: live.active == POLLS)
        more = await one.send(poll, 5)
        assert await statuses(more) == [429] * 5
        await goes_on(wire)
        if by_proxy:
            other = POLL.replace(b"600000", b"20") % b"x-forwarded-for: 203.0.113.10\r\n"
            assert await statuses(await one.send(other, POLLS)) == [204] * POLLS


async def test_addresses_of_one_ipv6_network_have_one_share(wire: Wire) -> None:
    """A customer gets a network of 2^64 addresses and can use another address for each connection."""
    live = wire.app.server
    assert live is not None
    async with stranger(wire, PROXY) as one:
        for host in range(POLLS):
            await one.send(POLL % b"x-forwarded-for: 2001:db8:0:7::%x\r\n" % host, 1)
        await until(lambda: live.active == POLLS)
        [last] = one.streams[-1:]
        more = await one.send(POLL % b"x-forwarded-for: 2001:db8:0:7:9::1\r\n", 3)
        assert await statuses(more) == [429] * 3
        other = POLL.replace(b"600000", b"20") % b"x-forwarded-for: 2001:db8:0:8::1\r\n"
        assert await statuses(await one.send(other, POLLS)) == [204] * POLLS
        last[1].transport.abort()
        await until(lambda: live.active == POLLS - 1)
        again = POLL.replace(b"600000", b"20") % b"x-forwarded-for: 2001:db8:0:7:9::1\r\n"
        assert await statuses(await one.send(again, 1)) == [204], "what left is free again"
    await until(lambda: not [limit for limit in live.peer_limits.values() if "2001" in limit.address])


@pytest.mark.parametrize("by_proxy", [False, True], ids=["direct", "proxied"])
async def test_of_bytes_that_it_sends(wire: Wire, by_proxy: bool) -> None:
    """Bodies without an end, on as many connections, would exceed the total limit."""
    budget = wire.app.broker.process.budget
    async with stranger(wire, PROXY if by_proxy else STRANGER) as one:
        head = b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        head += b"x-forwarded-for: 203.0.113.9\r\n" if by_proxy else b""
        body = b"content-length: %d\r\n\r\n" % LARGE + b" " * (LARGE - 1)
        [first] = await one.send(head + body, 1)
        await until(lambda: budget.used >= LARGE - 1)
        more = await one.send(head + body, CONNECTIONS - 1)
        assert await statuses(more) == [429] * (CONNECTIONS - 1)
        assert budget.used < MIB
        await goes_on(wire)
        first[1].write(b" ")
        assert await statuses([first]) == [400], "it was taken, and is no JSON"


async def test_of_answers_that_it_does_not_read(tmp_path: Path) -> None:
    """Answers of nine MiB, partly held in the system's buffers. Refused bytes are free again at once."""
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    most = limits(msgspec.structs.replace(SETTINGS, inflight_bytes_max=48 * MIB))
    async with serving(await backend.open(None), limits=most) as wire:
        budget = wire.app.broker.process.budget
        queues = [f"large{number}" for number in range(6)]
        for queue in queues:
            for _ in range(12):
                await wire.push(queue, "x" * LARGE)
        async with stranger(wire) as one:
            for queue in queues:
                pop = b"GET /api/v1/pop/queue/%b?batch=100 HTTP/1.1\r\nhost: localhost\r\n\r\n" % queue.encode()
                await one.send(pop, 1)
            await until(lambda: budget.used > 4 * MIB)
            await goes_on(wire)
            assert budget.used < 24 * MIB
            refused = [queue for queue in queues if await wire.pop(queue)]
            assert len(refused) > 3
