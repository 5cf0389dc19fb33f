"""Status of the broker: health, metrics, verbs and journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.broker.broker import Broker
from fairlane.http.metrics.exposition import exposition
from fairlane.http.metrics.families import CONTENT_TYPE
from fairlane.http.router import Routes, respond
from fairlane.http.server import Request, Response
from fairlane.wire.status import Alive, EngineStatus, Health, HealthWorker, JournalReport, Metrics, Ready

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

routes = Routes("status")
health = Routes("health")


@routes.get("/api/v1/status/engine", needs="status", live=True, operator=True)
async def engine(broker: Broker) -> EngineStatus:
    """Show counts and latencies of each verb, connections and waiting requests."""
    return broker.status.engine()


@routes.get("/api/v1/status/buffers", needs="status", live=True, operator=True)
async def journal_report(broker: Broker) -> JournalReport:
    """Show the journal of this process: its pending and failed operations."""
    return await broker.status.journal_report()


@health.get("/livez", needs="public")
async def livez() -> Alive:
    """Answer 200 while the broker runs."""
    return Alive()  # even if the store is down, which is no reason to restart the broker


@health.get("/readyz", needs="public", statuses=(200, 503), answer=Ready)
async def readyz(app: HttpApp, request: Request) -> Response:
    """Answer 200 while the store answers and the broker is not stopping.

    Callers with the scope `status` for some queue also see the journal.
    """
    caller = app.authenticator.principal_or_nobody(request)
    connected = await app.broker.status.healthy()
    ready = connected and not app.draining
    answer = Ready(
        status="ready" if ready else "draining" if connected else "not ready",
        database="connected" if connected else "disconnected",
        journal=app.broker.of(caller.tenant).status.journal() if caller.allows_some("status") else None,
    )
    return respond(answer) if ready else respond(answer, 503).plus((b"retry-after", b"1"))


@health.get("/health", needs="status", statuses=(200, 503), answer=Health, live=True)
async def show_health(app: HttpApp, broker: Broker) -> Response:
    """Show whether the store is available, and the version and uptime of this broker."""
    connected = await broker.status.healthy()
    answer = Health(
        status="healthy" if connected else "unhealthy",
        database="connected" if connected else "disconnected",
        worker_id=app.worker_id,
        version=app.version,
        store=broker.status.store_kind,
        uptime_seconds=broker.status.uptime_seconds(),
        queen=HealthWorker(worker_id=app.worker_id),
    )
    return respond(answer, 200 if connected else 503)


@health.get("/metrics", needs="status", answer=Metrics, content_type=CONTENT_TYPE, operator=True)
async def metrics(app: HttpApp, broker: Broker, request: Request) -> Response:
    """Show metrics as Prometheus text for all processes of this broker.

    With an `Accept` header for JSON, shows the process that answers. Leaves out the store's metrics while it is down.
    """
    if b"application/json" in request.headers.get(b"accept", b""):
        return respond(broker.status.metrics())
    return await prometheus(app)


@health.get("/metrics/prometheus", needs="status", content_type=CONTENT_TYPE, operator=True)
async def prometheus(app: HttpApp) -> Response:
    """Show metrics as Prometheus text."""
    return Response(200, await exposition(app), content_type=CONTENT_TYPE.encode())
