"""The application: routes over one broker. Every error becomes an answer here, and nowhere else."""

from __future__ import annotations

import asyncio
import os
import socket
from importlib.metadata import version

from fairlane.broker.broker import Broker
from fairlane.broker.browse import Browser
from fairlane.broker.census import Census
from fairlane.errors import FairlaneError
from fairlane.http.browsers import Hosts, check_origins
from fairlane.http.cors import Cors
from fairlane.http.door import AppDoor
from fairlane.http.problems import problem
from fairlane.http.router import Route, Router
from fairlane.http.routes import ROUTES
from fairlane.http.server import Limits, Request, Response, Server, overloaded
from fairlane.http.siblings import Siblings
from fairlane.http.store_metrics import StoreMetrics
from fairlane.http.unknown import check_parameters
from fairlane.runtime.clock import wall_clock

_HEALTH_SECONDS = 2.0


class App:
    """The application, as endpoints are given it: the broker, and what they ask about it. `server` is the
    one that listens, once there is one; `siblings` are the other processes, if this is one of several."""

    def __init__(self, broker: Broker, *, siblings: Siblings | None = None) -> None:
        self.broker = broker
        self.tenant = broker.tenant
        self.census = Census(broker.store)
        self.browser = Browser(broker.store)
        self.router = Router(ROUTES)
        self.server: Server | None = None
        self.description: asyncio.Task[bytes] | None = None
        """Of the API, once somebody asked for it."""
        self.version = version("fairlane")
        self.hostname = socket.gethostname()
        self.siblings = siblings
        self.store_metrics = StoreMetrics(self)
        self.worker_id = os.getpid()

    def serve(
        self, limits: Limits | None = None, *, hosts: Hosts | None = None, cors_origin: str | None = None
    ) -> Server:
        """The server of this application, which does not listen yet. `hosts` are its names, `cors_origin` names whose
        pages may call it."""
        origins = check_origins(cors_origin) if cors_origin else frozenset[bytes]()
        handler = Cors(self.handle, origins) if origins else self.handle
        door = AppDoor(self, hosts or Hosts(), origins)
        self.server = Server(handler, limits, door=door, budget=self.broker.budget)
        return self.server

    def find(self, request: Request) -> Route | Response:
        """The route of a request, or the answer where there is none; looked for once."""
        if request.found is None:
            try:
                request.found = self.router.match(request)
            except FairlaneError as error:
                request.found = problem(error)
        found: Route | Response = request.found
        return found

    async def handle(self, request: Request) -> Response:
        try:
            found = request.found or self.find(request)
            if isinstance(found, Response):
                return found
            if request.method == "GET" and self.broker.budget.room < 0 and found.tag != "health":
                return overloaded()
            if request.query_string and (known := found.parameters) is not None:
                check_parameters(request.query, known)
            return await found.endpoint(self, request)
        except FairlaneError as error:
            return problem(error)
        except Exception as error:  # the request's boundary: one request's mistake is not the connection's
            return problem(error)

    @property
    def draining(self) -> bool:
        return self.server is not None and self.server.draining

    def http_load(self) -> tuple[int, int]:
        """Connections of clients, and requests being answered."""
        return (len(self.server.connections), self.server.active) if self.server else (0, 0)

    def uptime_seconds(self) -> float:
        return max(0.001, (wall_clock() - self.broker.telemetry.started_at) / 1e6)

    async def healthy(self) -> bool:
        """Whether the store answers in reasonable time."""
        if self.broker.journal_route is not None and not self.broker.journal_route.watch.up:
            return False
        try:
            await asyncio.wait_for(self.broker.store.flags.on(), _HEALTH_SECONDS)
        except (FairlaneError, TimeoutError):
            return False
        return True
