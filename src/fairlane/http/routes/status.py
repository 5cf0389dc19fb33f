"""Status of the broker: health, metrics, verbs and journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.broker.broker import Broker
from fairlane.http.metrics.exposition import exposition
from fairlane.http.metrics.families import CONTENT_TYPE
from fairlane.http.router import Routes, respond
from fairlane.http.server import Request, Response
from fairlane.wire.queen import Health, Worker
from fairlane.wire.status import Alive, EngineStatus, JournalReport, Metrics, Ready

if TYPE_CHECKING:
    from fairlane.http.app import App

routes = Routes("status")
health = Routes("health")


@routes.get("/api/v1/status/engine", needs="status", live=True, operator=True)
async def engine(broker: Broker) -> EngineStatus:
    """Counts and latencies of each verb, connections, what waits."""
    return broker.status.engine()


@routes.get("/api/v1/status/buffers", needs="status", live=True, operator=True)
async def journal_report(broker: Broker) -> JournalReport:
    """Operations outside the store, in the journal of this process, and those that failed there."""
    return await broker.status.journal_report()


@health.get("/livez", needs="public")
async def livez() -> Alive:
    """200 while the broker runs."""
    return Alive()  # as long as it answers: a store that is away is no reason to restart the broker


@health.get("/readyz", needs="public", statuses=(200, 503), answer=Ready)
async def readyz(app: App, request: Request) -> Response:
    """200 while the broker can work: its store answers and it is not stopping. The journal is shown to callers with the
    scope `status` for some queue."""
    caller = app.access.caller_or_nobody(request)
    connected = await app.broker.status.healthy()
    ready = connected and not app.draining
    answer = Ready(
        status="ready" if ready else "draining" if connected else "not ready",
        database="connected" if connected else "disconnected",
        journal=app.broker.of(caller.tenant).status.journal() if caller.allows_some("status") else None,
    )
    return respond(answer) if ready else respond(answer, 503).plus((b"retry-after", b"1"))


@health.get("/health", needs="status", statuses=(200, 503), answer=Health, live=True)
async def show_health(app: App, broker: Broker) -> Response:
    """Whether the store answers, and what runs here."""
    connected = await broker.status.healthy()
    answer = Health(
        status="healthy" if connected else "unhealthy",
        database="connected" if connected else "disconnected",
        worker_id=app.worker_id,
        version=app.version,
        store=broker.status.store_kind,
        uptime_seconds=broker.status.uptime_seconds(),
        queen=Worker(worker_id=app.worker_id),
    )
    return respond(answer, 200 if connected else 503)


@health.get("/metrics", needs="status", answer=Metrics, content_type=CONTENT_TYPE, operator=True)
async def metrics(app: App, broker: Broker, request: Request) -> Response:
    """Metrics as Prometheus text, of all processes of this broker, or as JSON, of the one that answers, if `Accept`
    asks for that. While the store is away what it would say is left out."""
    if b"application/json" in request.headers.get(b"accept", b""):
        return respond(broker.status.metrics())
    return await prometheus(app)


@health.get("/metrics/prometheus", needs="status", content_type=CONTENT_TYPE, operator=True)
async def prometheus(app: App) -> Response:
    """Metrics as Prometheus text."""
    return Response(200, await exposition(app), content_type=CONTENT_TYPE.encode())
