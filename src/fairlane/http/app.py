"""The application: routes over one broker.

It decides on a request by its headers, before the body is read, and turns every error into a response.
"""

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

from fairlane.broker.broker import Broker
from fairlane.broker.compiled_specs import Runner
from fairlane.broker.tenants import NONE
from fairlane.errors import FairlaneError, NotFound, OverQuota
from fairlane.http.auditing import audited
from fairlane.http.auth.authentication import Authenticator
from fairlane.http.cross_origin import Cors, Hosts, content_type_refusal, cross_site_refusal, parse_origins
from fairlane.http.live import Live
from fairlane.http.metrics.families import SERIES_MAX
from fairlane.http.metrics.store import StoreMetrics
from fairlane.http.openapi import openapi
from fairlane.http.problems import problem
from fairlane.http.route_table import ROUTES
from fairlane.http.router import Route, Router
from fairlane.http.routes import webhooks
from fairlane.http.server import Limits, Proxies, Request, Response, Server, bad_request, overloaded, too_large
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.principal import ANYBODY, NOBODY, PUBLIC, SIGNATURE, Principal
from fairlane.otel import tracing
from fairlane.runtime.peer_processes import PeerProcesses
from fairlane.wire.base import encode
from fairlane.wire.monitoring import Setting

if TYPE_CHECKING:
    from fairlane.http.auth.tokens import Tokens

_IGNORED_BYTES_MAX = 64 * 1024
"""Largest body that a route without a body ignores. Some clients send an empty object with every POST."""

_LARGE_BYTES = 1024 * 1024
"""Size above which bodies are decoded one at a time."""


class HttpApp:
    """The application, as endpoints get it: the broker, and the state of the HTTP server.

    `server` is set once it listens. `peer_processes` are the other processes, or None if this is the only one.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        peer_processes: PeerProcesses | None = None,
        metrics_series_max: int = SERIES_MAX,
        settings: Sequence[Setting] = (),
        tokens: Tokens | None = None,
        runner: Runner | None = None,
    ) -> None:
        """Create the application. `runner` runs the commands of webhooks; without one they are refused."""
        self.broker = broker
        self.runner = runner
        self.settings = list(settings)
        self.router = Router(ROUTES)
        self.authenticator = Authenticator(broker, tokens)
        self._credentials = broker.process.credentials
        self._tenants = broker.tenants
        self.connections: Counter[str] = Counter()
        """Connections by the tenants of their callers."""
        self.server: Server | None = None
        self._description: asyncio.Task[bytes] | None = None
        self.version = version("fairlane")
        self.hostname = socket.gethostname()
        self.peer_processes = peer_processes
        self.store_metrics = StoreMetrics(broker, metrics_series_max)
        broker.process.telemetry.counters.series_max = metrics_series_max
        self.worker_id = os.getpid()
        self.live = Live(self)
        self._hosts = Hosts()
        self._origins: frozenset[bytes] = frozenset()
        self._large_bodies = asyncio.Lock()
        if (spans := tracing.spans()) is not None:
            from fairlane.http.request_spans import RequestSpans

            self.handle = RequestSpans(self.handle, spans)  # type: ignore[method-assign]

    def serve(
        self,
        limits: Limits | None = None,
        *,
        hosts: Hosts | None = None,
        cors_origin: str | None = None,
        proxies: Proxies | None = None,
    ) -> Server:
        """Return the server of this application, which does not listen yet.

        `hosts` are its names. `cors_origin` names the origins whose pages may call it.
        """
        self._hosts = hosts or self._hosts
        self._origins = parse_origins(cors_origin) if cors_origin else frozenset()
        handler = Cors(self._answer, self._origins) if self._origins else self.handle
        self.server = Server(handler, limits, policy=self, budget=self.broker.process.budget, proxies=proxies)
        return self.server

    async def description(self) -> bytes:
        """Return the description of the API, which is built once.

        It is built in a thread, because it takes as long as a thousand pushes and anybody may ask for it.
        """
        if self._description is None:
            self._description = asyncio.create_task(asyncio.to_thread(lambda: encode(openapi(self.router.routes))))
        return await asyncio.shield(self._description)

    def broker_of(self, request: Request) -> Broker:
        """Return the broker of the caller's tenant."""
        caller = request.caller
        return self.broker if caller is ANYBODY else self.broker.of(caller.tenant)

    def administered(self, request: Request) -> Broker:
        """Return the broker of the tenant that a request to the admin API names, by default the caller's.

        An operator may name any tenant. For others, tenants other than their own do not exist.
        """
        own, named = self.broker_of(request), request.query.get("tenant_id")
        if named is None or named == own.tenant:
            return own
        if request.caller.tenant != DEFAULT_TENANT or named not in self.broker.tenants.known:
            raise NotFound(f"there is no tenant {named!r:.80}")
        return self.broker.of(named)

    def on_bound(self, address: str) -> None:
        self._hosts.add(address)

    def on_headers(self, request: Request, *, has_body: bool) -> Response | int:
        """Accept requests to a known host, for a route that the caller may use, and not from pages of other sites."""
        headers, budget, before = request.headers, self.broker.process.budget, request.caller
        refused = None if headers[b"host"] in self._hosts.accepted else self._hosts.refusal(headers[b"host"])
        if refused is None and (b"origin" in headers or b"sec-fetch-site" in headers):
            refused = cross_site_refusal(request, self._origins)
        if refused is not None:
            return refused
        path = request.method, request.path
        found: Route | Response | None = self.router.static.get(path)
        if found is None and (matched := self.router.matched.get(path)) is not None:
            found, request.params = matched
        found = request.found = found or self._find(request)
        request.caller = self._credentials.anybody
        if request.caller is None and isinstance(found, Route):
            found = request.found = self.authenticator.refusal(request, found) or found
        if request.caller is not before:
            found = request.found = self._joined(request, before) or found
        if self._tenants.rate_limits and isinstance(found, Route) and found.needs not in (PUBLIC, SIGNATURE):
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
        if found.endpoint is webhooks.receive:
            return webhooks.body_bytes_max(self, request)
        refusal = None if headers.get(b"content-type") == b"application/json" else content_type_refusal(request)
        return refusal or found.body_bytes_max

    def _joined(self, request: Request, before: Principal | None) -> Response | None:
        """Count a connection for the tenant of its caller instead of the previous caller's.

        Returns the error response, which ends the connection, if it exceeds the quota.
        """
        caller: Principal | None = request.caller
        tenant = None if caller is None or caller is NOBODY else caller.tenant
        if before is not None and before is not NOBODY and before.tenant == tenant:
            return None
        if tenant is not None:
            most = self._tenants.known.get(tenant, NONE).connections
            if most is not None and self.connections[tenant] >= most:
                request.caller = before
                why = f"tenant {tenant!r} has {self.connections[tenant]} connections here already, and may have {most}"
                refusal = problem(OverQuota(f"{why}; use those it has", retry_after=1.0), request)
                return msgspec.structs.replace(refusal, close=True)
            self.connections[tenant] += 1
        self.on_disconnect(before)
        return None

    def on_disconnect(self, caller: Principal | None) -> None:
        """Stop counting a connection of this caller. Callers without a credential are not counted."""
        if caller is not None and caller is not NOBODY:
            self.connections[caller.tenant] -= 1
            if not self.connections[caller.tenant]:
                del self.connections[caller.tenant]

    def _over_quota(self, request: Request) -> Response | None:
        """Return the error response if the tenant exceeds its requests per second, else None."""
        tenant = self.broker_of(request).tenant
        rate_limit = self._tenants.rate_limits.get(tenant)
        if rate_limit is None or rate_limit.allows(time.monotonic()):
            return None
        why = f"tenant {tenant!r} may send {rate_limit.per_second} requests a second to each process"
        return problem(OverQuota(why, retry_after=1.0), request)

    def _find(self, request: Request) -> Route | Response:
        """Return the route of a request, or the error response if no route matches."""
        try:
            return self.router.match(request)
        except FairlaneError as error:
            return problem(error)

    def on_body_too_large(self, request: Request, bytes_max: int) -> Response:
        if request.path.startswith(b"/hook/"):
            return webhooks.too_large(self, request, bytes_max)
        return too_large(bytes_max)

    def handle(self, request: Request) -> Awaitable[Response]:
        """Return the response to an accepted request."""
        route: Route = request.found
        if request.query_string and request.query_string not in route.checked:
            route.check_query(request)
        if request.caller is ANYBODY and self._credentials.anybody is None and route.needs not in (PUBLIC, SIGNATURE):
            self._credentials.check_good(ANYBODY)  # the first key was created while the body arrived
        if len(request.body) > _LARGE_BYTES:
            return self._answer_large(route, request)
        return self._answer_route(route, request)

    async def _answer_large(self, route: Route, request: Request) -> Response:
        """Answer a request with a large body.

        Decoding blocks the event loop, so large bodies are decoded one at a time, with other requests in between.
        """
        await self._large_bodies.acquire()
        asyncio.get_running_loop().call_soon(self._large_bodies.release)
        return await self._answer_route(route, request)

    def _answer_route(self, route: Route, request: Request) -> Awaitable[Response]:
        if route.audited:
            return audited(self.broker, request, partial(route.endpoint, self, request))
        if route.long:
            self._credentials.check_waiting(request.caller)
            return self._credentials.while_good(request.caller, route.endpoint(self, request))
        return route.endpoint(self, request)

    def on_error(self, error: Exception, request: Request | None = None) -> Response:
        return problem(error, request)

    async def _answer(self, request: Request) -> Response:
        """Answer a request. Errors become responses here, so that pages of other origins can read them, too."""
        found: Route | Response = request.found
        try:
            return found if isinstance(found, Response) else await self.handle(request)
        except Exception as error:  # the request's boundary: its failure does not end the connection
            return problem(error, request)

    @property
    def draining(self) -> bool:
        return self.server is not None and self.server.draining

    def http_load(self) -> tuple[int, int]:
        """Return the number of client connections, and of requests in flight."""
        return (len(self.server.connections), self.server.active) if self.server else (0, 0)
