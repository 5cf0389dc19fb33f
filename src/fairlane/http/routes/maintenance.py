"""Maintenance: pausing pops and pushes for all brokers of the store, and hints between brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.broker.flags import POP_MAINTENANCE, PUSH_MAINTENANCE
from fairlane.http.decode import decode
from fairlane.http.router import Route
from fairlane.http.routes.status import journal_status
from fairlane.http.server import Request, Response, error_response, json_response
from fairlane.http.wire_health import (
    BufferStats,
    Maintenance,
    MaintenanceBody,
    Notified,
    NotifyBody,
    PopMaintenance,
    Refreshed,
    SharedState,
)
from fairlane.model.names import check_name

if TYPE_CHECKING:
    from fairlane.http.app import App


async def show(app: App, request: Request) -> Response:
    return json_response(await _maintenance(app))


async def _maintenance(app: App, message: str | None = None) -> Maintenance:
    healthy = await app.healthy()
    journal = journal_status(app)
    pending, failed = (journal.messages, journal.failed) if journal is not None else (0, 0)
    return Maintenance(
        maintenance_mode=await app.broker.flags.is_on(PUSH_MAINTENANCE),
        pop_maintenance_mode=await app.broker.flags.is_on(POP_MAINTENANCE),
        buffered_messages=pending,
        buffer_healthy=healthy,
        buffer_stats=BufferStats(pending_count=pending, failed_count=failed, db_healthy=healthy),
        message=message,
    )


async def set_maintenance(app: App, request: Request) -> Response:
    """Every broker of the store sees it within two seconds, this one at once."""
    body = decode(request.body, MaintenanceBody)
    route = app.broker.route
    if route.journal is None:
        if body.enabled:
            return error_response(409, "not_available", "pushes cannot wait: this broker has no journal for them")
        return json_response(await _maintenance(app, "Maintenance mode is off"))
    await app.broker.flags.turn(PUSH_MAINTENANCE, body.enabled)
    route.news.set()
    sentence = "Pushes are kept in the journal" if body.enabled else "Pushes are stored; what was kept is being drained"
    return json_response(await _maintenance(app, sentence))


async def show_pop(app: App, request: Request) -> Response:
    return json_response(_pop(await app.broker.flags.is_on(POP_MAINTENANCE)))


async def set_pop_maintenance(app: App, request: Request) -> Response:
    body = decode(request.body, MaintenanceBody)
    await app.broker.flags.turn(POP_MAINTENANCE, body.enabled)
    app.broker.waiters.wake_all()  # parked polls end with an empty answer, or go on
    return json_response(_pop(body.enabled))


def _pop(on: bool) -> PopMaintenance:
    sentence = "Pops answer that there is nothing" if on else "Pops deliver messages"
    return PopMaintenance(pop_maintenance_mode=on, message=sentence)


async def notify(app: App, request: Request) -> Response:
    body = decode(request.body, NotifyBody)
    queue = await app.broker.catalogue.queue(app.tenant, check_name("queue", body.queue), make=False)
    if queue is not None:
        app.broker.waiters.wake(queue.id, len(app.broker.waiters))
    return json_response(Notified(status="ok"))


async def shared_state(app: App, request: Request) -> Response:
    return json_response(SharedState(enabled=False, store=app.broker.store.kind))


async def refresh(app: App, request: Request) -> Response:
    return json_response(Refreshed(skipped=True, reason="statistics are counted when they are asked for"))


_SYSTEM = "/api/v1/system"
ROUTES = [
    Route(
        method="GET",
        path=f"{_SYSTEM}/maintenance",
        endpoint=show,
        summary="Which maintenance modes are on.",
        tag="maintenance",
        answer=Maintenance,
    ),
    Route(
        method="POST",
        path=f"{_SYSTEM}/maintenance",
        endpoint=set_maintenance,
        summary="Keep pushes in the journal; turned off, they are stored. 409 without a journal.",
        tag="maintenance",
        body=MaintenanceBody,
        answer=Maintenance,
        statuses=(200, 409),
    ),
    Route(
        method="GET",
        path=f"{_SYSTEM}/maintenance/pop",
        endpoint=show_pop,
        summary="Whether pops are paused.",
        tag="maintenance",
        answer=PopMaintenance,
    ),
    Route(
        method="POST",
        path=f"{_SYSTEM}/maintenance/pop",
        endpoint=set_pop_maintenance,
        summary="Pause or resume all pops, at every broker of the store within two seconds.",
        tag="maintenance",
        body=MaintenanceBody,
        answer=PopMaintenance,
    ),
    Route(
        method="GET",
        path=f"{_SYSTEM}/shared-state",
        endpoint=shared_state,
        summary="What brokers share beside their store: nothing.",
        tag="maintenance",
        answer=SharedState,
    ),
    Route(
        method="GET",
        path="/internal/api/shared-state/stats",
        endpoint=shared_state,
        summary="The same.",
        tag="maintenance",
        answer=SharedState,
    ),
    Route(
        method="GET",
        path="/internal/api/inter-instance/stats",
        endpoint=shared_state,
        summary="The same.",
        tag="maintenance",
        answer=SharedState,
    ),
    Route(
        method="POST",
        path="/internal/api/notify",
        endpoint=notify,
        summary="Tell this broker's long polls that a queue may have messages.",
        tag="maintenance",
        body=NotifyBody,
        answer=Notified,
    ),
    Route(
        method="POST",
        path="/api/v1/stats/refresh",
        endpoint=refresh,
        summary="Count anew. Nothing to do here: what is shown is counted when it is asked for.",
        tag="maintenance",
        answer=Refreshed,
    ),
]
