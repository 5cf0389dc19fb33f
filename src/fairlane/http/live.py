"""The live stream: sends answers of the API to all watchers, whenever they change.

Each watched path is requested once per refresh, however many clients watch it. A change is encoded once. Listeners have
no buffer: a slow one gets the whole answer next instead of a difference. Slow paths are refreshed less often, so that
watching takes a small part of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fairlane.errors import Forbidden, InvalidRequest, Overloaded, StoreUnavailable
from fairlane.http.auth.scopes import check_route
from fairlane.http.problems import problem
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, error_response
from fairlane.model.principal import Grants, Principal
from fairlane.wire.base import encode
from fairlane.wire.monitoring import WATCHED_MAX, LiveChange, LiveSnapshot

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

STREAMS_MAX: Final = 1000
REFRESH_SECONDS: Final = 0.5
COMMENT_SECONDS: Final = 15.0
"""Something is sent at least this often, so that proxies keep the connection and lost clients are noticed."""
_PAUSE_FACTOR: Final = 30
_FAILED_SECONDS: Final = 0.1
_REQUEST_SECONDS: Final = 5.0
_AT_ONCE: Final = 2
"""Maximum number of concurrent refreshes. The connections of the store are for messages first."""
_CLOCKS: Final = frozenset({"timestamp", "statsAge", "uptimeSeconds", "uptime"})
"""Fields that hold the time. A difference in only these fields does not count as a change."""


_Key = tuple[str, Grants, str]


class _Watched:
    """A watched path and its latest answer. `version` counts its changes."""

    def __init__(self, path: str, request: Request) -> None:
        self.path = path
        self.request = request
        self.key: _Key = (request.caller.tenant, request.caller.grants, path)
        """Callers of one tenant with the same grants share an answer."""
        self.route: Route | None = None
        """None if the path cannot be watched. Its answer is the error then."""
        self.listeners: set[asyncio.Event] = set()
        self.task: asyncio.Task[None] | None = None
        self.seconds = 0.0
        """Duration of the last refresh."""
        self.version = 0
        self._status = 0
        self._body = b""
        self._value: Any = None
        self._whole = b""
        self._change: bytes | None = None

    def event_since(self, version: int) -> bytes:
        """Return the event for a listener that has received `version` (0 for none). Empty if nothing changed."""
        if version == self.version:
            return b""
        return self._change if self._change is not None and version == self.version - 1 else self._whole

    def update(self, answer: Response) -> None:
        """Store an answer, and wake the listeners if it changed."""
        whole = b"".join((answer.body, *answer.parts))
        if (answer.status, whole) == (self._status, self._body):
            return
        value = _value(whole)
        patch = difference(self._value, value) if answer.status == self._status == 200 else None
        if patch is not None and patch.keys() <= _CLOCKS:
            return
        kind = b"snapshot" if answer.status < 400 else b"problem"
        # Payloads are sent as they were pushed. A line end, possible only between tokens, would end the event.
        body = msgspec.Raw(whole.replace(b"\n", b" ").replace(b"\r", b" ") or b"null")
        self._whole = _event(kind, LiveSnapshot(path=self.path, status=answer.status, body=body))
        self._change = None
        if patch is not None:
            with contextlib.suppress(OverflowError):  # a number of a payload that is too large for our encoder
                change = _event(b"change", LiveChange(path=self.path, patch=patch))
                self._change = change if len(change) < len(self._whole) else None
        self._status, self._body, self._value = answer.status, whole, value
        self.version += 1
        for listener in self.listeners:
            listener.set()


def _value(body: bytes) -> Any:
    """Decode an answer for comparison. Returns None if it holds a payload that cannot be decoded."""
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(body)


def _event(kind: bytes, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind, encode(data))


def difference(before: Any, after: Any) -> dict[str, Any] | None:
    """Return the JSON merge patch between two objects, or None without one: a patch cannot set null."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value and type(old) is type(value):
            continue
        inner: Any = value
        if isinstance(value, dict):
            inner = difference(old if isinstance(old, dict) else {}, value)
        if inner is None:
            return None
        patch[name] = inner
    return patch


class Live:
    """The watched paths of a broker process."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app
        self._watched: dict[_Key, _Watched] = {}
        self._streams = 0
        self._concurrency = asyncio.Semaphore(_AT_ONCE)

    def watch(self, paths: list[str], caller: Principal) -> AsyncGenerator[bytes]:
        """Return the events of these paths, for as long as the credential of the caller is valid.

        Raises Overloaded if too many streams are open.
        """
        if not 1 <= len(paths) <= WATCHED_MAX:
            raise InvalidRequest(f"`watch` must be given 1 to {WATCHED_MAX} times, each with a path of this API")
        if self._streams >= STREAMS_MAX:
            raise Overloaded(f"{STREAMS_MAX} live streams are open already")
        seen = caller.tenant, caller.grants
        found = [self._watched.get((*seen, path)) or self._new_watched(path, caller) for path in dict.fromkeys(paths)]
        return self._stream(found, caller)

    def _new_watched(self, path: str, caller: Principal) -> _Watched:
        target, _, query = path.encode().partition(b"?")
        one = _Watched(path, Request("GET", target, {}, b"", "", query, caller=caller))
        try:
            route = self._app.router.match(one.request)
            if isinstance(route, Route) and route.live:
                if route.operator or route.needs not in caller.grants.whole:
                    check_route(caller, route, one.request.params.get("queue"))
                route.check_query(one.request)
                one.route = route
            else:
                one.update(error_response(404, "not_live", f"{path!r:.200} cannot be watched; /docs lists all paths"))
        except (Forbidden, InvalidRequest) as error:
            one.update(problem(error))
        return one

    async def _stream(self, found: list[_Watched], caller: Principal) -> AsyncGenerator[bytes]:
        news, credentials = asyncio.Event(), self._app.broker.process.credentials
        watched = [self._watched.setdefault(one.key, one) for one in found]
        sent = [0] * len(watched)
        self._streams += 1
        try:
            for one in watched:
                one.listeners.add(news)
                if one.task is None and one.route is not None:
                    one.task = asyncio.create_task(self._refresh_loop(one), name=f"fairlane live {one.path:.80}")
            yield b"retry: 1000\n\n"
            while True:
                news.clear()
                part = b"".join(map(_Watched.event_since, watched, sent))
                sent = [one.version for one in watched]
                if part:
                    credentials.check_good(caller)  # a reader that always lags never waits below
                    yield part
                    continue
                try:
                    async with asyncio.timeout(COMMENT_SECONDS):
                        await credentials.while_good(caller, news.wait())
                except TimeoutError:
                    yield b":\n\n"
        finally:
            self._streams -= 1
            ending = []
            for one in watched:
                one.listeners.discard(news)
                if one.listeners:
                    continue
                self._watched.pop(one.key, None)
                if one.task is not None:
                    one.task.cancel()
                    ending.append(one.task)
                    one.task = None
            if ending:  # no query is left running after the last stream
                await asyncio.wait(ending)

    async def _refresh_loop(self, one: _Watched) -> None:
        """Refresh a path until cancelled."""
        known = False
        while True:
            async with self._concurrency:
                began = time.perf_counter()
                answer = await self._request(one)
                one.update(answer)
                # A failed request does not say how long a good one takes.
                took = time.perf_counter() - began if answer.status < 500 else _FAILED_SECONDS
                # The first request does not either, because it may have to fill caches.
                one.seconds, known = took if known else 0.0, True
            await asyncio.sleep(self._pause_seconds(one))

    async def _request(self, one: _Watched) -> Response:
        assert one.route is not None
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                return await one.route.endpoint(self._app, one.request)
        except TimeoutError:
            return problem(StoreUnavailable(f"GET {one.path} took longer than {_REQUEST_SECONDS:g} s"))
        except Exception as error:  # the request's boundary: the error is shown, and the path refreshed again
            return problem(error)

    def _pause_seconds(self, one: _Watched) -> float:
        """Return the pause before the next refresh. All refreshes together take a thirtieth of the time."""
        share = sum(
            each.seconds / max(REFRESH_SECONDS, _PAUSE_FACTOR * each.seconds) for each in self._watched.values()
        )
        return max(REFRESH_SECONDS, _PAUSE_FACTOR * one.seconds) * max(1.0, _PAUSE_FACTOR * share)
