"""Schedules: define, list, show, pause, resume, run now, delete."""

from __future__ import annotations

import contextlib

from fairlane.broker.broker import Broker
from fairlane.errors import NotFound
from fairlane.http.auth import scopes
from fairlane.http.router import Routes
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.principal import Principal
from fairlane.wire.schedules import (
    Schedule,
    ScheduleDeleted,
    ScheduleListQuery,
    ScheduleOptions,
    ScheduleRun,
    Schedules,
)

routes = Routes("schedules")
_ONE = "/api/v1/schedules/{name}"


@routes.get("/api/v1/schedules", needs="status", each=True, live=True)
async def list_schedules(broker: Broker, caller: Principal, query: ScheduleListQuery) -> Schedules:
    """List schedules with their next ticks: all by name, or a page of matches."""
    return await broker.schedules.page(query, caller)


@routes.get(_ONE, needs="status", each=True, live=True)
async def get(broker: Broker, caller: Principal, name: str) -> Schedule:
    """Show one schedule."""
    return await _found(broker, caller, "status", name)


@routes.post(_ONE, needs="configure", each=True, body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def define(broker: Broker, caller: Principal, name: str, body: ScheduleOptions) -> Schedule:
    """Define or replace a schedule. Repeating the same definition changes nothing."""
    await _check_replaced(broker, caller, name)
    caller.check("configure", body.queue)
    await scopes.check_pushes(broker, caller, [body.queue])
    return await broker.schedules.define(name, body)


@routes.delete(_ONE, needs="configure", each=True)
async def delete(broker: Broker, caller: Principal, name: str) -> ScheduleDeleted:
    """Delete a schedule. Its pushed messages are kept."""
    await _check_replaced(broker, caller, name)
    return ScheduleDeleted(name=name, deleted=await broker.schedules.delete(name))


@routes.post(f"{_ONE}/pause", needs="configure", each=True)
async def pause(broker: Broker, caller: Principal, name: str) -> Schedule:
    """Pause a schedule until it is resumed."""
    await _found(broker, caller, "configure", name)
    return await broker.schedules.pause(name)


@routes.post(f"{_ONE}/resume", needs="configure", each=True)
async def resume(broker: Broker, caller: Principal, name: str) -> Schedule:
    """Resume a paused schedule with its next tick."""
    await _found(broker, caller, "configure", name)
    return await broker.schedules.resume(name)


@routes.post(f"{_ONE}/run", needs="push", each=True)
async def run(broker: Broker, caller: Principal, name: str) -> ScheduleRun:
    """Push the message of a schedule once, now."""
    await _found(broker, caller, "push", name)
    return await broker.schedules.run(name)


async def _found(broker: Broker, caller: Principal, scope: str, name: str) -> Schedule:
    found = await broker.schedules.get(name)
    caller.check(scope, found.queue)
    return found


async def _check_replaced(broker: Broker, caller: Principal, name: str) -> None:
    """Check the scope for the queue of the existing schedule, if there is one."""
    if not caller.allows_all("configure"):
        with contextlib.suppress(NotFound):
            await _found(broker, caller, "configure", name)
