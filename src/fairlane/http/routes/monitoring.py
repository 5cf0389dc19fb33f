"""Monitoring: the system report, history, findings, and the live stream."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from fairlane.broker.broker import Broker
from fairlane.broker.snoozes import queue_of
from fairlane.http.auth import scopes
from fairlane.http.router import EVENTS, Routes
from fairlane.http.server import Request, Response
from fairlane.model.moment import Moment
from fairlane.model.principal import Principal
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.process import resident_bytes
from fairlane.wire.monitoring import (
    BrokerProcess,
    Finding,
    FindingList,
    History,
    HistoryQuery,
    LiveQuery,
    SnoozeBody,
    SystemReport,
    Unsnoozed,
    UnsnoozeQuery,
)

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

routes = Routes("status")
live = Routes("live")
_MEBIBYTE = 2**20


@routes.get("/api/v1/system", needs="status", live=True, operator=True)
async def system(app: HttpApp, broker: Broker) -> SystemReport:
    """Show this broker, its store, and the settings in force."""
    connected = await broker.status.healthy()
    report = await broker.status.store_report() if connected else {"kind": broker.status.store_kind}
    return SystemReport(
        broker=BrokerProcess(
            version=app.version,
            hostname=app.hostname,
            pid=app.worker_id,
            python=platform.python_version(),
            started_at=broker.status.started_at,
            # Rounded, so that watchers do not get an event for each byte.
            memory_bytes=resident_bytes() // _MEBIBYTE * _MEBIBYTE,
            processes=1 if app.peer_processes is None else app.peer_processes.count,
        ),
        store={name: value for name, value in report.items() if name != "timestamp"} | {"answers": connected},
        journal=broker.status.journal(),
        settings=app.settings,
    )


@routes.get("/api/v1/history", needs="status", each=True, live=True)
async def history(broker: Broker, caller: Principal, query: HistoryQuery) -> History:
    """Show the recent history of one queue or of all: messages per second, depth and latencies, in columns."""
    scopes.check(caller, "status", query.queue)
    return await broker.history.show(query.queue, group=query.group, minutes=query.minutes, until=query.until)


@routes.get("/api/v1/findings", needs="status", each=True, live=True)
async def findings(broker: Broker, caller: Principal) -> FindingList:
    """List problems that need attention, most severe first, each with its page and an action that may fix it."""
    found = [one for one in await broker.findings.all() if scopes.allows(caller, "status", one.queue)]
    return FindingList(findings=found, timestamp=Moment(wall_clock()))


@routes.post("/api/v1/findings/snooze", needs="configure", each=True)
async def snooze(broker: Broker, caller: Principal, body: SnoozeBody) -> Finding:
    """Snooze a finding for a time or until it changes. It is still listed, with the end of its snooze."""
    scopes.check(caller, "configure", queue_of(body.key))
    return await broker.findings.snooze(body.key, seconds=body.seconds, caller=caller.name)


@routes.delete("/api/v1/findings/snooze", needs="configure", each=True)
async def unsnooze(broker: Broker, caller: Principal, query: UnsnoozeQuery) -> Unsnoozed:
    """End the snooze of a finding."""
    scopes.check(caller, "configure", queue_of(query.key))
    return Unsnoozed(key=query.key, deleted=await broker.findings.unsnooze(query.key))


@live.get("/api/v1/live", needs="known", query=LiveQuery, content_type=EVENTS)
async def watch(app: HttpApp, request: Request) -> Response:
    """Stream the answers of GET routes as they change, as server-sent events.

    Each `watch` is a path with its query. An event `snapshot` has the complete answer to a path, `change` a JSON merge
    patch against the previous one, `problem` the current error. No events are sent while nothing changes.
    """
    given = parse_qsl(request.query_string.decode("utf-8", "replace"))
    return Response(
        200, content_type=EVENTS.encode(), stream=app.live.watch([path for _, path in given], request.caller)
    )
