"""The application: routes over one broker. It decides on a request by its header alone, before a byte of its body is
read, and every error becomes an answer here, and nowhere else."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from fairlane import tracing
from fairlane.broker.broker import Broker
from fairlane.broker.tenants import NONE
from fairlane.errors import FairlaneError, NotFound, OverQuota
from fairlane.http.access import Access, audited
from fairlane.http.browsers import Cors, Hosts, check_origins, foreign, misfit
from fairlane.http.live import Live
from fairlane.http.metrics.families import SERIES_MAX
from fairlane.http.metrics.store import StoreMetrics
from fairlane.http.problems import problem
from fairlane.http.router import Route, Router
from fairlane.http.routes import ROUTES, hooks
from fairlane.http.server import Limits, Proxies, Request, Response, Server, bad_request, overloaded, too_large
from fairlane.model.access import ANYBODY, NOBODY, PUBLIC, SIGNATURE, Caller
from fairlane.model.names import DEFAULT_TENANT
from fairlane.runtime.siblings import Siblings
from fairlane.wire.system import Setting

if TYPE_CHECKING:
    from fairlane.http.tokens import Tokens

_IGNORED_BYTES_MAX = 64 * 1024
"""Of a body that its route has no use for: some clients send an empty object with every POST."""

_LARGE_BYTES = 1024 * 1024
"""Larger bodies are decoded in turn."""


class App:
    """The application, as endpoints are given it: the broker, and what they ask about it. `server` is the
    one that listens, once there is one; `siblings` are the other processes, if this is one of several."""

    def __init__(
        self,
        broker: Broker,
        *,
        siblings: Siblings | None = None,
        metrics_series_max: int = SERIES_MAX,
        settings: Sequence[Setting] = (),
        tokens: Tokens | None = None,
    ) -> None:
        self.broker = broker
        self.settings = list(settings)
        self.router = Router(ROUTES)
        self.access = Access(broker, tokens)
        self._credentials = broker.credentials
        self._tenants = broker.tenants
        self.connections: Counter[str] = Counter()
        """By the tenants of their callers."""
        self.server: Server | None = None
        self.description: asyncio.Task[bytes] | None = None
        """Of the API, once somebody asked for it."""
        self.version = version("fairlane")
        self.hostname = socket.gethostname()
        self.siblings = siblings
        self.store_metrics = StoreMetrics(broker, metrics_series_max)
        self.worker_id = os.getpid()
        self.live = Live(self)
        self._hosts = Hosts()
        self._origins: frozenset[bytes] = frozenset()
        self._turn = asyncio.Lock()
        if (spans := tracing.spans()) is not None:
            from fairlane.http.spans import Traced

            self.handle = Traced(self.handle, spans)  # type: ignore[method-assign]

    def serve(
        self,
        limits: Limits | None = None,
        *,
        hosts: Hosts | None = None,
        cors_origin: str | None = None,
        proxies: Proxies | None = None,
    ) -> Server:
        """The server of this application, which does not listen yet. `hosts` are its names, `cors_origin` names whose
        pages may call it."""
        self._hosts = hosts or self._hosts
        self._origins = check_origins(cors_origin) if cors_origin else frozenset()
        handler = Cors(self._answer, self._origins) if self._origins else self.handle
        self.server = Server(handler, limits, door=self, budget=self.broker.budget, proxies=proxies)
        return self.server

    def broker_of(self, request: Request) -> Broker:
        """The broker of the caller's tenant."""
        caller = request.caller
        return self.broker if caller is ANYBODY else self.broker.of(caller.tenant)

    def administered(self, request: Request) -> Broker:
        """The broker of the tenant that a request to the admin API is about: the caller's, or the one it names. An
        operator may name any; others are told of no tenant but their own."""
        own, named = self.broker_of(request), request.query.get("tenant_id")
        if named is None or named == own.tenant:
            return own
        if request.caller.tenant != DEFAULT_TENANT or named not in self.broker.tenants.known:
            raise NotFound(f"there is no tenant {named!r:.80}")
        return self.broker.of(named)

    def bound(self, address: str) -> None:
        self._hosts.add(address)

    def admit(self, request: Request, *, has_body: bool) -> Response | int:
        """Let in what has a route that its caller may use, is asked under one of the broker's names, and was not asked
        by a page of another site."""
        headers, budget, before = request.headers, self.broker.budget, request.caller
        refused = None if headers[b"host"] in self._hosts.met else self._hosts.refusal(headers[b"host"])
        if refused is None and (b"origin" in headers or b"sec-fetch-site" in headers):
            refused = foreign(request, self._origins)
        if refused is not None:
            return refused
        found = request.found = self.router.static.get((request.method, request.path)) or self._find(request)
        request.caller = self._credentials.anybody
        if request.caller is None and isinstance(found, Route):
            found = request.found = self.access.refusal(request, found) or found
        if request.caller is not before:
            found = request.found = self._joined(request, before) or found
        if self._tenants.rations and isinstance(found, Route) and found.needs not in (PUBLIC, SIGNATURE):
            found = request.found = self._over_quota(request) or found
        if isinstance(found, Route) and request.method == "GET" and budget.used > budget.bytes_max * 3 // 4:
            found = request.found = found if found.tag == "health" else overloaded()
        if isinstance(found, Response):
            return found if has_body or not self._origins else 0
        if not has_body:
            return 0
        if found.body is None:
            if found.method in ("GET", "DELETE"):
                return bad_request(f"{found.method} {found.path} takes no body")
            return _IGNORED_BYTES_MAX
        if found.endpoint is hooks.receive:
            return hooks.body_bytes_max(self, request)
        misfits = None if headers.get(b"content-type") == b"application/json" else misfit(request)
        return misfits or found.body_bytes_max

    def _joined(self, request: Request, before: Caller | None) -> Response | None:
        """Count a connection for the tenant of its caller, and no more for that of the one before. The answer, which
        ends the connection, if it is one too many."""
        caller: Caller | None = request.caller
        tenant = _tenant(caller)
        if tenant == _tenant(before):
            return None
        if tenant is not None:
            most = self._tenants.known.get(tenant, NONE).connections
            if most is not None and self.connections[tenant] >= most:
                request.caller = before
                why = f"tenant {tenant!r} has {self.connections[tenant]} connections here already, and may have {most}"
                refusal = problem(OverQuota(f"{why}; use those it has", retry_after=1.0), request)
                return msgspec.structs.replace(refusal, close=True)
            self.connections[tenant] += 1
        self.left(before)
        return None

    def left(self, caller: Caller | None) -> None:
        if (tenant := _tenant(caller)) is not None:
            self.connections[tenant] -= 1
            if not self.connections[tenant]:
                del self.connections[tenant]

    def _over_quota(self, request: Request) -> Response | None:
        """The answer to a request that is one too many of its tenant in this second."""
        tenant = self.broker_of(request).tenant
        ration = self._tenants.rations.get(tenant)
        if ration is None or ration.allows(time.monotonic()):
            return None
        why = f"tenant {tenant!r} may send {ration.per_second} requests a second to each process"
        return problem(OverQuota(why, retry_after=1.0), request)

    def _find(self, request: Request) -> Route | Response:
        """The route of a request, or the answer where there is none."""
        try:
            return self.router.match(request)
        except FairlaneError as error:
            return problem(error)

    def too_large(self, request: Request, bytes_max: int) -> Response:
        if request.path.startswith(b"/hook/"):
            return hooks.too_large(self, request, bytes_max)
        return too_large(bytes_max)

    def handle(self, request: Request) -> Awaitable[Response]:
        """The answer to a request that was admitted."""
        route: Route = request.found
        if request.query_string and request.query_string not in route.checked:
            route.check_query(request)
        if request.caller is ANYBODY and self._credentials.anybody is None and route.needs not in (PUBLIC, SIGNATURE):
            self._credentials.check_good(ANYBODY)  # the first key was made while the body arrived
        if len(request.body) > _LARGE_BYTES:
            return self._in_turn(route, request)
        return self._answered(route, request)

    async def _in_turn(self, route: Route, request: Request) -> Response:
        """Answer a request with a large body. The event loop stands still while one is decoded, so each has a turn of
        its own, and others come in between."""
        await self._turn.acquire()
        asyncio.get_running_loop().call_soon(self._turn.release)
        return await self._answered(route, request)

    def _answered(self, route: Route, request: Request) -> Awaitable[Response]:
        if route.audited:
            return audited(self.broker, request, partial(route.endpoint, self, request))
        if route.long:
            self._credentials.check_room(request.caller)
            return self._credentials.while_good(request.caller, route.endpoint(self, request))
        return route.endpoint(self, request)

    def failed(self, error: Exception, request: Request | None = None) -> Response:
        return problem(error, request)

    async def _answer(self, request: Request) -> Response:
        """For pages of other origins, who are to see what failed too."""
        found: Route | Response = request.found
        try:
            return found if isinstance(found, Response) else await self.handle(request)
        except Exception as error:  # the request's boundary: one request's mistake is not the connection's
            return problem(error, request)

    @property
    def draining(self) -> bool:
        return self.server is not None and self.server.draining

    def http_load(self) -> tuple[int, int]:
        """Connections of clients, and requests being answered."""
        return (len(self.server.connections), self.server.active) if self.server else (0, 0)


def _tenant(caller: Caller | None) -> str | None:
    """Whose connections those of the caller are; None of strangers."""
    return None if caller is None or caller is NOBODY else caller.tenant
