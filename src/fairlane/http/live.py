"""The live stream: answers of the API, sent again as they change to all who watch them.

Each path is asked for once a turn, however many watch it, and by nobody while nobody does. What changed is encoded
once. A listener has no buffer: one that was slow to read gets the whole answer next instead of a difference. A path
that takes long is asked for seldom, and the more of them there are the more seldom, so that watching takes a small
share of the time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fairlane.errors import Forbidden, InvalidRequest, Overloaded, StoreUnavailable
from fairlane.http.access import check
from fairlane.http.problems import problem
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, error_response
from fairlane.model.access import Caller, Grants
from fairlane.wire.base import encode
from fairlane.wire.live import WATCHED_MAX, Change, Snapshot

if TYPE_CHECKING:
    from fairlane.http.app import App

STREAMS_MAX: Final = 1000
TURN_SECONDS: Final = 0.5
COMMENT_SECONDS: Final = 15.0
"""So often something is sent at least: whoever stands between does not hang up, and a client that left is noticed."""
_SHARE: Final = 30
_FAILED_SECONDS: Final = 0.1
_ASK_SECONDS: Final = 5.0
_AT_ONCE: Final = 2
"""Paths that are asked for beside each other: the store's connections are for messages first."""
_CLOCKS: Final = frozenset({"timestamp", "statsAge", "uptimeSeconds", "uptime"})
"""Fields that tell the time: nothing changed if only they did."""


_Key = tuple[str, Grants, str]


class _Watched:
    """A path that somebody watches, with the answer it had last. `version` counts its answers that differ."""

    def __init__(self, path: str, request: Request) -> None:
        self.path = path
        self.request = request
        self.key: _Key = (request.caller.tenant, request.caller.grants, path)
        """Whoever may see the same sees one answer."""
        self.route: Route | None = None
        """None if it cannot be watched, which its answer says."""
        self.listeners: set[asyncio.Event] = set()
        self.task: asyncio.Task[None] | None = None
        self.seconds = 0.0
        """How long it takes to answer."""
        self.version = 0
        self._status = 0
        self._body = b""
        self._value: Any = None
        self._whole = b""
        self._change: bytes | None = None

    def since(self, version: int) -> bytes:
        """What to send to whoever has had this version, 0 for none."""
        if version == self.version:
            return b""
        return self._change if self._change is not None and version == self.version - 1 else self._whole

    def take(self, answer: Response) -> None:
        """Remember an answer, and wake those who listen if it is another one."""
        whole = b"".join((answer.body, *answer.parts))
        if (answer.status, whole) == (self._status, self._body):
            return
        value = _value(whole)
        patch = difference(self._value, value) if answer.status == self._status == 200 else None
        if patch is not None and patch.keys() <= _CLOCKS:
            return
        kind = b"snapshot" if answer.status < 400 else b"problem"
        # A payload is as its producer wrote it. Line ends can only be between its tokens, and here end an event.
        body = msgspec.Raw(whole.replace(b"\n", b" ").replace(b"\r", b" ") or b"null")
        self._whole = _event(kind, Snapshot(path=self.path, status=answer.status, body=body))
        self._change = None
        if patch is not None:
            with contextlib.suppress(OverflowError):  # a number of a payload that is too large for our encoder
                change = _event(b"change", Change(path=self.path, patch=patch))
                self._change = change if len(change) < len(self._whole) else None
        self._status, self._body, self._value = answer.status, whole, value
        self.version += 1
        for listener in self.listeners:
            listener.set()


def _value(body: bytes) -> Any:
    """An answer as a value to compare; None if it holds a payload that cannot be one."""
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(body)


def _event(kind: bytes, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind, encode(data))


def difference(before: Any, after: Any) -> dict[str, Any] | None:
    """The JSON merge patch from one object to another; None where there is none: it cannot set a field to null."""
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
    """The paths that are watched now."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._watched: dict[_Key, _Watched] = {}
        self._streams = 0
        self._room = asyncio.Semaphore(_AT_ONCE)

    def watch(self, paths: list[str], caller: Caller) -> AsyncGenerator[bytes]:
        """Events of these paths, as long as the caller is good; of one that cannot be watched that is told. Overloaded
        if too many do."""
        if not 1 <= len(paths) <= WATCHED_MAX:
            raise InvalidRequest(f"`watch` must be given 1 to {WATCHED_MAX} times, each with a path of this API")
        if self._streams >= STREAMS_MAX:
            raise Overloaded(f"{STREAMS_MAX} live streams are open already")
        seen = caller.tenant, caller.grants
        found = [self._watched.get((*seen, path)) or self._found(path, caller) for path in dict.fromkeys(paths)]
        return self._stream(found, caller)

    def _found(self, path: str, caller: Caller) -> _Watched:
        target, _, query = path.encode().partition(b"?")
        one = _Watched(path, Request("GET", target, {}, b"", "", query, caller=caller))
        try:
            route = self._app.router.match(one.request)
            if isinstance(route, Route) and route.live:
                if route.operator or route.needs not in caller.grants.whole:
                    check(caller, route, one.request.params.get("queue"))
                route.check_query(one.request)
                one.route = route
            else:
                one.take(error_response(404, "not_live", f"{path!r:.200} cannot be watched; /docs lists what there is"))
        except (Forbidden, InvalidRequest) as error:
            one.take(problem(error))
        return one

    async def _stream(self, found: list[_Watched], caller: Caller) -> AsyncGenerator[bytes]:
        news, credentials = asyncio.Event(), self._app.broker.credentials
        watched = [self._watched.setdefault(one.key, one) for one in found]
        sent = [0] * len(watched)
        self._streams += 1
        try:
            for one in watched:
                one.listeners.add(news)
                if one.task is None and one.route is not None:
                    one.task = asyncio.create_task(self._keep(one), name=f"fairlane live {one.path:.80}")
            yield b"retry: 1000\n\n"
            while True:
                news.clear()
                part = b"".join(map(_Watched.since, watched, sent))
                sent = [one.version for one in watched]
                if part:
                    credentials.check_good(caller)  # a reader that is always behind never waits below
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
            if ending:  # nothing is asked of the store any more when the last stream has ended
                await asyncio.wait(ending)

    async def _keep(self, one: _Watched) -> None:
        """Ask for a path again and again."""
        known = False
        while True:
            async with self._room:
                began = time.perf_counter()
                answer = await self._ask(one)
                one.take(answer)
                # A store that does not answer says nothing of how long it takes when it does.
                took = time.perf_counter() - began if answer.status < 500 else _FAILED_SECONDS
                # Nor does the first answer, which may wait for what others are served from.
                one.seconds, known = took if known else 0.0, True
            await asyncio.sleep(self._rest_seconds(one))

    async def _ask(self, one: _Watched) -> Response:
        assert one.route is not None
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                return await one.route.endpoint(self._app, one.request)
        except TimeoutError:
            return problem(StoreUnavailable(f"GET {one.path} took longer than {_ASK_SECONDS:g} s"))
        except Exception as error:  # the request's boundary: what fails is shown, and asked for again
            return problem(error)

    def _rest_seconds(self, one: _Watched) -> float:
        """Until it is asked for again: all that is watched takes a thirtieth of the time together."""
        share = sum(each.seconds / max(TURN_SECONDS, _SHARE * each.seconds) for each in self._watched.values())
        return max(TURN_SECONDS, _SHARE * one.seconds) * max(1.0, _SHARE * share)
