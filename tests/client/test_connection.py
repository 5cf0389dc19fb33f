"""The HTTP/1.1 implementation of the client, against servers that answer byte by byte as a test says."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fairlane import Client, FairlaneError, InvalidRequest, OutcomeUnknown, Unavailable
from tests.client.rogue import Rogue

QUEUES = json.dumps({"queues": [], "total": 0}).encode()


@asynccontextmanager
async def answering(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server whose connections give these answers, one to each request, and then close; its URL and what it got."""
    left, got = list(answers), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            got.append(head + await reader.readexactly(int(length[0].split(b":")[1]) if length else 0))
            for byte in left.pop(0):
                writer.write(bytes([byte]))
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**24, ssl=tls) as server:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}", got


def ok(body: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *headers, b"", body])


@pytest.mark.parametrize(
    "answer",
    [
        ok(QUEUES, b"Content-Length: %d" % len(QUEUES)),
        ok(QUEUES, b"CONTENT-LENGTH:%d " % len(QUEUES), b"Connection: close"),
        ok(b"%x\r\n%s\r\n0\r\n\r\n" % (len(QUEUES), QUEUES), b"Transfer-Encoding: chunked"),
        ok(
            b"3;a=b\r\n%s\r\n%X\r\n%s\r\n0\r\nT: 1\r\n\r\n" % (QUEUES[:3], len(QUEUES) - 3, QUEUES[3:]),
            b"Transfer-Encoding: chunked",
        ),
        b"HTTP/1.1 103 Early Notifier\r\nLink: x\r\n\r\n" * 1000 + ok(QUEUES, b"Content-Length: %d" % len(QUEUES)),
        ok(QUEUES),
    ],
    ids=["length", "closing", "chunk", "chunks", "hints", "until the end"],
)
async def test_every_form_of_an_answer_is_read(answer: bytes) -> None:
    async with answering(answer) as (url, got), Client(url, attempts=1) as client:
        assert await client.queues.all() == []
    assert re.match(rb"GET /api/v1/resources/queues\?\S+ HTTP/1\.1\r\nHost: 127\.0\.0\.1:", got[0])


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        ok(b"", b"Content-Length: many"),
        ok(b"", b"nothing"),
        ok(b"x\r\n", b"Transfer-Encoding: chunked"),
        ok(b"1\r\nabc\r\n", b"Transfer-Encoding: chunked"),
        ok(b"-2\r\n\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"),
        ok(b"+0\r\n\r\n", b"Transfer-Encoding: chunked"),
        ok(b"", b"Transfer-Encoding: gzip"),
        ok(b"[]", b"Content-Length: 9"),
        b"HTTP/1.1 2",
        b"x" * 70_000,
    ],
)
async def test_an_answer_that_is_no_http_or_ends_early_is_one_that_did_not_come(answer: bytes) -> None:
    async with answering(answer) as (url, _), Client(url, attempts=1) as client:
        with pytest.raises(OutcomeUnknown, match=r"the connection to http://127\.0\.0\.1:.* broke"):
            await client.queues.all()


async def test_a_connection_is_used_again_and_another_made_when_it_was_closed() -> None:
    full = ok(QUEUES, b"Content-Length: %d" % len(QUEUES))
    async with (
        answering(full, full, full) as (url, got),
        Client(f"{url}/behind/it", attempts=1, token="secret") as client,
    ):
        for _ in range(3):
            await client.queues.all()
    assert all(b"GET /behind/it/api/v1/" in head and b"\r\nAuthorization: Bearer secret\r\n" in head for head in got)


async def test_a_user_in_the_url_is_sent_as_basic_authorization() -> None:
    async with answering(ok(QUEUES)) as (url, got), Client(url.replace("//", "//us%20er:pass@"), attempts=1) as client:
        await client.queues.all()
    assert b"\r\nAuthorization: Basic dXMgZXI6cGFzcw==\r\n" in got[0]


async def test_a_large_body_arrives_whole_and_beside_others(client: Client, queue: str) -> None:
    text = "x" * 3_000_000
    await asyncio.gather(client.push(queue, text), client.queues.all())
    assert (await client.pop(queue))[0].data == text


async def test_a_redirect_is_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with answering(moved) as (url, got), Client(url, attempts=1) as client:
        with pytest.raises(FairlaneError, match="answered 302"):
            await client.queues.all()
    assert len(got) == 1


async def test_who_is_cancelled_closes_the_connection(rogue: Rogue, queue: str) -> None:
    rogue.hold = asyncio.Event()
    async with Client(rogue.url) as client:
        waiting = asyncio.create_task(client.pop(queue, wait=30))
        await rogue.until("/api/v1/pop", 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        rogue.hold.set()
        assert not await client.pop(queue)


def test_a_token_that_would_end_its_header_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="printable ASCII"):
        Client(token="a\r\nb: c")


def certificate(directory: Path) -> Path:
    """Make a self-signed certificate of 127.0.0.1 with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fairlane test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = directory / "server.pem"
    path.write_bytes(key.private_bytes(*form) + made.public_bytes(Encoding.PEM))
    return path


async def test_a_server_behind_tls_is_trusted_by_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    full = ok(QUEUES, b"Content-Length: %d" % len(QUEUES))
    async with answering(full, tls=context) as (url, got):
        async with Client(url, attempts=1) as client:
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await client.queues.all()
        assert not got
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        async with Client(url, attempts=1) as client:
            assert await client.queues.all() == []


def test_the_client_works_on_uvloop() -> None:
    async def look() -> None:
        async with answering(ok(QUEUES)) as (url, _), Client(url, attempts=1) as client:
            assert await client.queues.all() == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(look())


@pytest.mark.parametrize("url", ["http://a..b", f"http://{'x' * 70}.example", "http://", "ftp://a"])
def test_a_host_that_can_be_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="is not the URL of a server"):
        Client(url)
