"""HTTP: the only module of the client that knows aiohttp."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from io import BytesIO
from typing import NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from fairlane import tracing
from fairlane.client.problems import error_of
from fairlane.client.retries import Retries
from fairlane.client.servers import Servers
from fairlane.errors import FairlaneError, InvalidRequest, OutcomeUnknown, Overloaded, Unavailable
from fairlane.model.ids import uuid7

CONNECT_SECONDS = 5.0
PIECE_BYTES = 1024 * 1024
_UNAVAILABLE = (502, 503, 504)


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None

    def error(self) -> FairlaneError:
        return error_of(self.status, self.body, self.retry_after)


class Call(NamedTuple):
    """One request. `path` is encoded; `key` decides which server is asked first."""

    method: str
    path: str
    key: str
    body: bytes | None = None
    wait: float = 0.0
    """Seconds that the server may take on purpose."""


class Transport:
    """Sends calls to the servers, again where that may help. Bound to the event loop of its first call."""

    def __init__(self, servers: Servers, retries: Retries, *, timeout: float, token: str | None = None) -> None:
        self.servers = servers
        self.retries = retries
        self.own_key = uuid7()  # clients spread over the servers, and each keeps to one
        self._timeout = timeout
        self.spans = tracing.spans()
        self._headers = {"User-Agent": "fairlane"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def ask(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        query: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
        wait: float = 0.0,
    ) -> bytes:
        """The body of a successful answer, empty if it has none. Any other answer is raised."""
        if query:
            path = f"{path}?{urlencode(query)}"
        call = Call(method, path, self.own_key if key is None else key, body, wait)
        refusals = 0
        while True:
            answer = await self.exchange(call)
            if answer.status < 300:
                return answer.body
            error = answer.error()
            refusals += 1
            delay = self.retries.after_refusal(error, refusals) if isinstance(error, Overloaded) else None
            if delay is None:
                raise error
            await asyncio.sleep(delay)

    async def exchange(self, call: Call) -> Answer:
        """The first answer of a server that was able to give one, whatever it says."""
        failures = 0
        failure: FairlaneError = Unavailable("no server was asked")
        uncertain = False  # a request may have been carried out whose answer never came
        while True:
            for url in self.servers.order(call.key):
                try:
                    answer = await self._send(url, call)
                except _Unreached as broken:
                    failure = Unavailable(str(broken))
                except _Dropped as broken:
                    uncertain, failure = True, Unavailable(str(broken))
                else:
                    if answer.status not in _UNAVAILABLE:
                        self.servers.answered(url)
                        return answer
                    failure = answer.error()
                self.servers.failed(url)
            failures += 1
            delay = self.retries.after_failure(failures)
            if delay is None:
                raise OutcomeUnknown(f"{failure}; it may have been done all the same") if uncertain else failure
            await asyncio.sleep(delay)

    async def _send(self, url: str, call: Call) -> Answer:
        headers = {"Content-Type": "application/json"} if call.body is not None else None
        if self.spans is not None:
            headers = {**(headers or {}), **self.spans.context()}
        body: bytes | BytesIO | None = call.body
        if call.body is not None and len(call.body) > PIECE_BYTES:
            body = BytesIO(call.body)  # sent piece by piece, so that others have their turn
        timeout = aiohttp.ClientTimeout(total=self._timeout + call.wait, sock_connect=CONNECT_SECONDS)
        try:
            async with self._opened().request(
                call.method,
                URL(url + call.path, encoded=True),  # as it is: a name's %2F is not a slash
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                return Answer(response.status, await response.read(), response.headers.get("Retry-After"))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _Unreached(f"cannot reach {url}: {_reason(error)}") from None
        except TimeoutError:
            raise _Dropped(f"{url} did not answer within {timeout.total:g} s") from None
        except aiohttp.ClientError as error:
            raise _Dropped(f"the connection to {url} broke: {_reason(error)}") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise InvalidRequest("this client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Parked pops hold a connection each; how many there are is the caller's business.
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                skip_auto_headers=("Accept", "Accept-Encoding"),
            )
        return self._session

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()


class _Unreached(Exception):
    """The request was never sent."""


class _Dropped(Exception):
    """The request was sent, and no answer came."""


def _reason(error: Exception) -> str:
    cause = getattr(error, "os_error", error)
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno).lower()  # asyncio puts the address where the reason should be
    return (getattr(cause, "strerror", None) or str(error) or type(error).__name__).lower()


def path_of(*parts: str) -> str:
    """The parts as a path, each of them one segment whatever it contains."""
    return "/api/v1" + "".join(f"/{_segment(part)}" for part in parts)


def _segment(part: str) -> str:
    # A segment of dots alone would be read as a step in the path.
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")
