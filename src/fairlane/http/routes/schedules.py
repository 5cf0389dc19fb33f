"""Schedules: define, list, look at, pause, resume, run now, delete."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.wire.schedules import Schedule, ScheduleDeleted, ScheduleOptions, ScheduleRun, Schedules

routes = Routes("schedules")
_ONE = "/api/v1/schedules/{name}"


@routes.get("/api/v1/schedules", live=True)
async def list_schedules(broker: Broker) -> Schedules:
    """All schedules, by name, with their next ticks."""
    return Schedules(schedules=await broker.schedules.list())


@routes.get(_ONE, live=True)
async def get(broker: Broker, name: str) -> Schedule:
    """One schedule."""
    return await broker.schedules.get(name)


@routes.post(_ONE, body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def define(broker: Broker, name: str, body: ScheduleOptions) -> Schedule:
    """Define a schedule, or replace it; the same one again changes nothing."""
    return await broker.schedules.define(name, body)


@routes.delete(_ONE)
async def delete(broker: Broker, name: str) -> ScheduleDeleted:
    """Forget a schedule; what it pushed stays."""
    return ScheduleDeleted(name=name, deleted=await broker.schedules.delete(name))


@routes.post(f"{_ONE}/pause")
async def pause(broker: Broker, name: str) -> Schedule:
    """Let a schedule tick no more until it is resumed."""
    return await broker.schedules.pause(name)


@routes.post(f"{_ONE}/resume")
async def resume(broker: Broker, name: str) -> Schedule:
    """Let a paused schedule go on with its next tick."""
    return await broker.schedules.resume(name)


@routes.post(f"{_ONE}/run")
async def run(broker: Broker, name: str) -> ScheduleRun:
    """Push the message of a schedule once, now."""
    return await broker.schedules.run(name)
