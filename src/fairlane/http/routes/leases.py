"""Leases: renew, release and list."""

from __future__ import annotations

import msgspec

from fairlane.broker.broker import Broker
from fairlane.http.auth import scopes
from fairlane.http.router import Routes
from fairlane.model.moment import moment_or_none
from fairlane.model.principal import Principal
from fairlane.wire.leases import CancelledPosition, ExtendBody, LeaseList, LeaseQuery, Released, Renewed, Utilisation

routes = Routes("queues")
_EXTEND = ExtendBody()


@routes.get("/api/v1/leases", needs="status", each=True, live=True)
async def active(broker: Broker, caller: Principal, query: LeaseQuery) -> LeaseList:
    """List live leases with their holders, next to expire first."""
    scopes.check(caller, "status", query.queue)
    return LeaseList(
        leases=await broker.queues.leases(
            query.queue, group=query.consumer_group, ending_within=query.ending_within, limit=query.limit
        )
    )


@routes.get("/api/v1/queues/{queue}/utilisation", needs="status", live=True)
async def utilisation(broker: Broker, queue: str) -> Utilisation:
    """Show how much of a queue its consumers hold, its depth, and its free capacity."""
    return await broker.queues.utilisation(queue)


@routes.post("/api/v1/lease/{leaseId}/extend", needs="pop", each=True, audited=False, tag="messages")
async def extend(broker: Broker, caller: Principal, leaseId: str, body: ExtendBody = _EXTEND) -> Renewed:
    """Renew a lease."""
    await scopes.check_lease(broker, caller, leaseId)
    outcome = await broker.renew(leaseId, seconds=body.seconds)
    ends_at = moment_or_none(outcome.expires_at)
    return Renewed(
        lease_id=leaseId,
        success=outcome.renewed > 0,
        renewed=outcome.renewed,
        new_expires_at=ends_at,
        expires_at=ends_at,
        lease_expires_at=ends_at,
        error=msgspec.UNSET if outcome.renewed else "Lease not found or already expired",
        cancelled=[CancelledPosition(partition_id=str(id), position=position) for id, position in outcome.cancelled],
    )


@routes.post("/api/v1/lease/{leaseId}/release", needs="pop", each=True, audited=False, tag="messages")
async def release(broker: Broker, caller: Principal, leaseId: str) -> Released:
    """Release a lease at once, without counting an attempt."""
    await scopes.check_lease(broker, caller, leaseId)
    return Released(lease_id=leaseId, released=await broker.release(leaseId))
