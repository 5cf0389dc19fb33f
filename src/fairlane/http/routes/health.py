"""Health of the broker, and its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.http.families import CONTENT_TYPE
from fairlane.http.prometheus import exposition
from fairlane.http.router import Route
from fairlane.http.routes.status import engine_status, journal_status
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_health import Alive, Cpu, Health, Memory, Metrics, Pool, Rate, Ready, Worker
from fairlane.telemetry import cpu_seconds, resident_bytes

if TYPE_CHECKING:
    from fairlane.http.app import App


async def livez(app: App, request: Request) -> Response:
    """Alive as long as it answers: a store that is away is no reason to restart the broker."""
    return json_response(Alive(status="alive"))


async def readyz(app: App, request: Request) -> Response:
    connected = await app.healthy()
    ready = connected and not app.draining
    status = "ready" if ready else "draining" if connected else "not ready"
    database = "connected" if connected else "disconnected"
    journal = journal_status(app)
    if journal is not None and journal.why_not is not None:
        journal.why_not = "the store does not answer"  # anybody may ask; /api/v1/status/buffers says why
    answer = Ready(status=status, database=database, journal=journal)
    return json_response(answer, 200 if ready else 503, headers=() if ready else ((b"retry-after", b"1"),))


async def health(app: App, request: Request) -> Response:
    connected = await app.healthy()
    answer = Health(
        status="healthy" if connected else "unhealthy",
        database="connected" if connected else "disconnected",
        server="fairlane",
        worker_id=app.worker_id,
        version=app.version,
        store=app.broker.store.kind,
        uptime_seconds=app.uptime_seconds(),
        queen=Worker(worker_id=app.worker_id, status="active"),
    )
    return json_response(answer, 200 if connected else 503)


async def metrics(app: App, request: Request) -> Response:
    """Text, unless the caller asks for JSON."""
    if b"application/json" in request.headers.get(b"accept", b""):
        return json_response(_metrics(app))
    return await prometheus(app, request)


async def prometheus(app: App, request: Request) -> Response:
    return Response(200, await exposition(app), content_type=CONTENT_TYPE.encode())


def _metrics(app: App) -> Metrics:
    engine = engine_status(app)
    uptime = engine.uptime_seconds
    messages = sum(operation.items for operation in engine.operations.values())
    user, system = cpu_seconds()
    connections = engine.connections
    return Metrics(
        uptime=uptime,
        requests=Rate(total=engine.queue.completed, rate=engine.queue.completed / uptime),
        messages=Rate(total=messages, rate=messages / uptime),
        database=Pool(
            pool_size=connections.total,
            idle_connections=connections.total - connections.busy,
            waiting_requests=engine.queue.pending,
        ),
        memory=Memory(rss=resident_bytes()),
        cpu=Cpu(user=user, system=system),
        engine=engine,
    )


ROUTES = [
    Route(
        method="GET",
        path="/livez",
        endpoint=livez,
        summary="200 while the broker runs.",
        tag="health",
        answer=Alive,
    ),
    Route(
        method="GET",
        path="/readyz",
        endpoint=readyz,
        summary="200 while the broker can work: its store answers and it is not stopping.",
        tag="health",
        answer=Ready,
        statuses=(200, 503),
    ),
    Route(
        method="GET",
        path="/health",
        endpoint=health,
        summary="Whether the store answers, and what runs here.",
        tag="health",
        answer=Health,
        statuses=(200, 503),
    ),
    Route(
        method="GET",
        path="/metrics",
        endpoint=metrics,
        summary="Metrics as Prometheus text, of all processes of this broker, or as JSON, of the one that answers, if "
        "`Accept` asks for that. While the store is away what it would say is left out.",
        tag="health",
        answer=Metrics,
        content_type=CONTENT_TYPE,
    ),
    Route(
        method="GET",
        path="/metrics/prometheus",
        endpoint=prometheus,
        summary="Metrics as Prometheus text.",
        tag="health",
        content_type=CONTENT_TYPE,
    ),
]
