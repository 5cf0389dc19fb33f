"""TLS of the server: client certificates, the handshake timeout, and certificates that change."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlane.errors import InvalidRequest
from fairlane.http.server import Limits, Request, Response, Server, Tls, json_response, open_sockets
from tests.certificates import Certificates
from tests.until import SECONDS_MAX, until

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
LARGE = 20_000_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def own(tmp_path: Path) -> Certificates:
    """Certificates that the test may change."""
    return Certificates(tmp_path)


async def answer(request: Request) -> Response:
    if request.path == b"/large":
        return Response(200, b"x" * LARGE)
    return json_response({"bytes": len(request.body), "peer": request.peer})


@asynccontextmanager
async def serving(tls: Tls, limits: Limits | None = None) -> AsyncIterator[tuple[Server, int]]:
    server = Server(answer, limits)
    sockets = open_sockets("127.0.0.1", 0)
    await server.listen(sockets, tls=tls)
    try:
        yield server, sockets[0].getsockname()[1]
    finally:
        await server.close(grace_seconds=1)


async def talk(port: int, context: ssl.SSLContext | None, sent: bytes = GET) -> bytes:
    """Send bytes, then read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), SECONDS_MAX)
    finally:
        writer.close()


async def test_who_trusts_the_authority_is_served(certificates: Certificates) -> None:
    async with serving(Tls(certificates.cert, certificates.key)) as (server, port):
        assert (await talk(port, certificates.trusting())).startswith(b"HTTP/1.1 200 ")
        chunked = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % LARGE
        assert b'"bytes":20000000' in await talk(port, certificates.trusting(), chunked + b"x" * LARGE)
        large = await talk(port, certificates.trusting(), GET.replace(b"/ ", b"/large ", 1))
        assert large.endswith(b"x" * LARGE)
        await until(lambda: not server.connections)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_is_not_read_is_counted(certificates: Certificates, loop: str) -> None:
    async def unread() -> None:
        async with serving(Tls(certificates.cert, certificates.key)) as (server, port):
            context = certificates.trusting()
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1024)
            writer.write(GET.replace(b"/ ", b"/large ", 1).replace(b"connection: close\r\n", b""))
            await until(lambda: server.budget.used >= LARGE)
            writer.transport.abort()
            await until(lambda: server.budget.used == 0)

    made = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=made) as runner:
        runner.run(unread())


async def test_a_refusal_reaches_a_client_that_is_still_sending(certificates: Certificates) -> None:
    async with serving(Tls(certificates.cert, certificates.key), Limits(body_bytes_max=1000)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificates.trusting())
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % LARGE)
        writer.write(b"x" * LARGE)
        assert (await asyncio.wait_for(reader.readuntil(b"}"), SECONDS_MAX)).startswith(b"HTTP/1.1 413 ")
        writer.transport.abort()


async def heard(port: int, context: ssl.SSLContext | None) -> bytes:
    """Send and read like `talk`, from a server that may refuse.

    In TLS 1.3 the client learns that from its first read.
    """
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        return await talk(port, context)
    return b""


async def test_another_authority_an_expired_certificate_or_no_tls_is_no_agreement(own: Certificates) -> None:
    async with serving(Tls(own.cert, own.key)) as (server, port):
        with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
            await talk(port, own.trusting(own.other_ca))
        assert b"200" not in await heard(port, None)
        await until(lambda: not server.connections)
    own.renew(expired=True)
    async with serving(Tls(own.cert, own.key)) as (_, port):
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            await talk(port, own.trusting())


async def test_with_an_authority_for_clients_only_its_own_are_let_in(certificates: Certificates) -> None:
    async with serving(Tls(certificates.cert, certificates.key, certificates.ca)) as (server, port):
        mine = certificates.trusting(client=certificates.client)
        assert (await talk(port, mine)).startswith(b"HTTP/1.1 200 ")
        for context in (certificates.trusting(), certificates.trusting(client=certificates.other_client)):
            assert not await heard(port, context)
        await until(lambda: not server.connections)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a hello"])
async def test_agreeing_takes_no_longer_than_a_header_may_and_counts_as_a_connection(
    certificates: Certificates, sent: bytes
) -> None:
    limits = Limits(header_seconds=0.3, connections_max=2)
    async with serving(Tls(certificates.cert, certificates.key), limits) as (server, port):
        began = asyncio.get_running_loop().time()
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in slow:
            writer.write(sent)
        await until(lambda: len(server.connections) == 2)
        assert not await heard(port, certificates.trusting())
        for reader, writer in slow:
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), SECONDS_MAX)
            writer.close()
        assert asyncio.get_running_loop().time() - began > 0.29
        await until(lambda: not server.connections)
        assert (await talk(port, certificates.trusting())).startswith(b"HTTP/1.1 200 ")


async def test_a_header_is_due_when_it_would_be_without_tls(certificates: Certificates) -> None:
    async with serving(Tls(certificates.cert, certificates.key), Limits(header_seconds=0.5)) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificates.trusting())
        writer.write(b"GET / HT")
        with contextlib.suppress(ConnectionError):
            assert (await asyncio.wait_for(reader.read(), SECONDS_MAX)).startswith(b"HTTP/1.1 408 ")
        writer.close()
        await until(lambda: not server.connections)


async def test_new_connections_get_a_new_certificate_and_old_ones_go_on(own: Certificates) -> None:
    tls = Tls(own.cert, own.key)
    async with serving(tls) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=own.trusting())
        before = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        renewed = own.renew()
        tls.reload()
        _, other = await asyncio.open_connection("127.0.0.1", port, ssl=own.trusting())
        assert int(other.get_extra_info("ssl_object").getpeercert()["serialNumber"], 16) == renewed
        assert int(before, 16) != renewed
        other.close()
        own.spoil()
        with pytest.raises(InvalidRequest, match="cannot use the certificate"):
            tls.reload()
        writer.write(GET)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert (await talk(port, own.trusting())).startswith(b"HTTP/1.1 200 ")


def test_versions_before_tls_1_2_are_not_spoken(certificates: Certificates) -> None:
    context = Tls(certificates.cert, certificates.key).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    spoken = {one["name"] for one in context.get_ciphers()}
    assert all("GCM" in name or "CHACHA20" in name for name in spoken)
    assert all(name.startswith(("ECDHE-", "TLS_")) for name in spoken)


def test_files_that_are_none_are_named(own: Certificates, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for files, word in (
        ((str(tmp_path / "none.pem"), own.key), "none.pem: No such file"),
        ((own.cert, str(tmp_path)), "Is a directory"),
        ((own.cert, str(empty)), "empty.pem"),
        ((own.cert, own.client), "KEY_VALUES_MISMATCH"),
        ((own.cert, own.key, str(empty)), "empty.pem"),
    ):
        with pytest.raises(InvalidRequest, match=word):
            Tls(*files)
