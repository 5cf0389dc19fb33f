"""An external server on loopback, with a certificate for the host names of the tests."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import fairlane.commands.http
import fairlane.store.sqlite.store  # noqa: F401  # now: the loop of a test should not wait for them
from tests.spec.samples import INCIDENTS, compiled

HOST = "incidents.example"


@pytest.fixture(scope="session", autouse=True)
def parser() -> None:
    """Build the parser in advance, because building it would block an event loop."""
    compiled(INCIDENTS)


class Asked(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes
    sni: str | None


class Answers:
    """The answers of the server, one after the other, with the last one repeated; and the requests it received."""

    def __init__(self, *answers: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.connections = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.url = ""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            try:
                while await self._answer(reader, writer):
                    pass
                writer.close()
                await writer.wait_closed()
            finally:
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. Returns True if the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        sni = getattr(writer.get_extra_info("ssl_object"), "asked_for", None)
        self.asked.append(Asked(head[0], headers, body, sni))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            await answer(writer)
            return False
        writer.write(answer)
        await writer.drain()
        return True


def said(status: int, body: bytes = b"", *headers: str) -> bytes:
    more = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


Serving = Callable[..., AbstractAsyncContextManager[Answers]]


@pytest.fixture
def serving() -> Serving:
    """`async with serving(said(200)) as answers:` a server at `answers.url`; with `trust=` one over TLS."""

    @contextlib.asynccontextmanager
    async def serve(
        *answers: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]], trust: ssl.SSLContext | None = None
    ) -> AsyncIterator[Answers]:
        found = Answers(*answers)
        server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=trust)
        found.port = server.sockets[0].getsockname()[1]
        found.url = f"http://127.0.0.1:{found.port}/api"
        try:
            yield found
        finally:
            server.close()
            for task in found.tasks:
                task.cancel()
            if found.tasks:
                await asyncio.wait(found.tasks)
            await server.wait_closed()

    return serve


class Certificates(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for a server `incidents.example`, and the CA that signed them."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = directory / "server.pem"
    _write(pem, key, certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)

    def remember(session: ssl.SSLObject, asked_for: str | None, context: ssl.SSLContext) -> None:
        session.asked_for = asked_for  # type: ignore[attr-defined]

    server.sni_callback = remember
    return Certificates(server, ssl.create_default_context(cafile=str(pem)))


def _write(pem: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))


LOOPBACK = ipaddress.ip_address("127.0.0.1")
