"""Workers: their reports, and the effects that their handlers store."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.auth import scopes
from fairlane.http.router import Routes
from fairlane.model.principal import Principal
from fairlane.wire.workers import (
    Effect,
    EffectBody,
    EffectQuery,
    WorkerLeft,
    WorkerListQuery,
    WorkerReport,
    Workers,
)

routes = Routes("workers")
effects = Routes("effects")


@routes.get("/api/v1/workers", needs="status", live=True)
async def list_workers(broker: Broker, query: WorkerListQuery) -> Workers:
    """List live workers with their queues and current work: all by id, or a page of matches. Also lists lost ones."""
    return await broker.workers.page(query)


@routes.post("/api/v1/workers/{id}", needs="pop", each=True, audited=False, statuses=(204,))
async def report(broker: Broker, caller: Principal, id: str, body: WorkerReport) -> None:
    """Store the report of a worker, which counts as alive for the next 30 seconds."""
    for own in body.queues:
        caller.check("pop", own.queue)
    await _check_known(broker, caller, id)
    await broker.workers.report(id, body)


@routes.delete("/api/v1/workers/{id}", needs="pop", each=True, audited=False)
async def deregister(broker: Broker, caller: Principal, id: str) -> WorkerLeft:
    """Remove a worker that ends."""
    await _check_known(broker, caller, id)
    return WorkerLeft(id=id, left=await broker.workers.deregister(id))


async def _check_known(broker: Broker, caller: Principal, id: str) -> None:
    """Raise Forbidden unless the caller may pop from every queue of the worker that has this id."""
    if not caller.allows_all("pop"):
        for queue in await broker.workers.queues(id):
            caller.check("pop", queue)


@effects.get("/api/v1/effects/{key}", needs="pop", each=True, name="effects.get")
async def get_effect(broker: Broker, caller: Principal, key: str, query: EffectQuery) -> Effect:
    """Show the stored effect of a handler for a message."""
    await scopes.check_partitions(broker, caller, "pop", [query.partition_id])
    return await broker.effects.get(key, query)


@effects.post("/api/v1/effects/{key}", needs="pop", each=True, audited=False, name="effects.keep")
async def keep_effect(broker: Broker, caller: Principal, key: str, body: EffectBody) -> Effect:
    """Store the effect of a handler, unless one exists under the key. Returns the stored one."""
    await scopes.check_partitions(broker, caller, "pop", [body.partition_id])
    return await broker.effects.keep(key, body)
