"""Queen's maintenance modes, which pause all pushes or pops, and endpoints that do nothing here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.queen.wire import answers as wire

if TYPE_CHECKING:
    pass

routes = Routes("maintenance")
_SYSTEM = "/api/v1/system"


@routes.get(f"{_SYSTEM}/maintenance", needs="status")
async def show_maintenance(broker: Broker) -> wire.Maintenance:
    """Show the maintenance modes that are on."""
    return await _maintenance(broker)


@routes.post(f"{_SYSTEM}/maintenance", needs="system", operator=True)
async def set_maintenance(broker: Broker, body: wire.MaintenanceBody) -> wire.Maintenance:
    """Keep pushes in the journal while on, and store them when turned off. Answers 409 without a journal."""
    await broker.pauses.pause_pushes(body.enabled)
    if broker.status.journal() is None:
        return await _maintenance(broker, "Maintenance mode is off")
    if body.enabled:
        return await _maintenance(broker, "Pushes are kept in the journal")
    return await _maintenance(broker, "Pushes are stored; what was kept is being drained")


async def _maintenance(broker: Broker, message: str | None = None) -> wire.Maintenance:
    healthy, journal = await broker.status.healthy(), broker.status.journal()
    pending, failed = (journal.messages, journal.failed) if journal is not None else (0, 0)
    paused = await broker.pauses.everywhere()
    return wire.Maintenance(
        maintenance_mode=paused.pushes,
        pop_maintenance_mode=paused.pops,
        buffered_messages=pending,
        buffer_healthy=healthy,
        buffer_stats=wire.BufferStats(pending_count=pending, failed_count=failed, db_healthy=healthy),
        message=message,
    )


@routes.get(f"{_SYSTEM}/maintenance/pop", needs="status")
async def show_pop_maintenance(broker: Broker) -> wire.PopMaintenance:
    """Show whether pops are paused."""
    return _pops((await broker.pauses.everywhere()).pops)


@routes.post(f"{_SYSTEM}/maintenance/pop", needs="system", operator=True)
async def set_pop_maintenance(broker: Broker, body: wire.MaintenanceBody) -> wire.PopMaintenance:
    """Pause or resume all pops, at every broker of the store within two seconds."""
    await broker.pauses.pause_pops(body.enabled)
    return _pops(body.enabled)


def _pops(paused: bool) -> wire.PopMaintenance:
    message = "Pops answer that there is nothing" if paused else "Pops deliver messages"
    return wire.PopMaintenance(pop_maintenance_mode=paused, message=message)


@routes.get(f"{_SYSTEM}/shared-state", needs="status")
async def state_of_brokers(broker: Broker) -> wire.SharedState:
    """Answer that brokers share nothing but their store."""
    return wire.SharedState(store=broker.status.store_kind)


@routes.get("/internal/api/shared-state/stats", "/internal/api/inter-instance/stats", needs="status")
async def state_again(broker: Broker) -> wire.SharedState:
    """Answer that brokers share nothing but their store."""
    return wire.SharedState(store=broker.status.store_kind)


@routes.post("/internal/api/notify", needs="system", audited=False)
async def notify(broker: Broker, body: wire.NotifyBody) -> wire.Notified:
    """Wake this broker's long polls, because a queue may have messages."""
    await broker.queues.wake(body.queue)
    return wire.Notified()


@routes.post("/api/v1/stats/refresh", needs="status", each=True, audited=False)
async def refresh() -> wire.Refreshed:
    """Refresh the statistics. Does nothing, because they are computed on request."""
    return wire.Refreshed()
