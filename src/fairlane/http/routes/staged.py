"""Staged messages, and the database roles that may enqueue them."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.auth import scopes
from fairlane.http.router import Routes
from fairlane.model.principal import Principal
from fairlane.wire import staged as wire

routes = Routes("staged")
_GRANTS = "/api/v1/staged/grants"


@routes.get("/api/v1/staged", needs="status", live=True)
async def queues(broker: Broker) -> wire.StagedQueues:
    """List queues with messages that were enqueued in transactions of other programs and are not moved yet."""
    return wire.StagedQueues(queues=await broker.staged.queues())


@routes.get(_GRANTS, needs="keys", live=True)
async def grants(broker: Broker) -> wire.EnqueueGrants:
    """List the roles of the database that may enqueue, with their queues."""
    return wire.EnqueueGrants(grants=await broker.staged.grants())


@routes.post(_GRANTS, needs="keys")
async def grant(broker: Broker, caller: Principal, body: wire.EnqueueGrantBody) -> wire.EnqueueGrant:
    """Allow a role of the database to enqueue messages into a queue, or into every queue, and to complete them.

    The caller needs the rights that the role gets: the scopes push, create and pop.
    """
    for scope in ("push", "create", "pop"):
        scopes.check(caller, scope, body.queue)
    await broker.staged.grant(body.role, body.queue)
    return wire.EnqueueGrant(role=body.role, queue=body.queue)


@routes.delete(_GRANTS, needs="keys")
async def revoke(broker: Broker, query: wire.EnqueueGrantBody) -> wire.EnqueueRevoked:
    """Revoke a grant. A role without any other loses its rights in the database."""
    return wire.EnqueueRevoked(
        role=query.role, queue=query.queue, revoked=await broker.staged.revoke(query.role, query.queue)
    )
