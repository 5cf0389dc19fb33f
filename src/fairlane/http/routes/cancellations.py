"""Cancellations: cancel a message, and watch the messages of leases."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.auth import scopes
from fairlane.http.router import Routes
from fairlane.model.ids import PartitionId
from fairlane.model.principal import Principal
from fairlane.wire import cancellations as wire

routes = Routes("cancellations")
_DEFAULT = wire.CancelBody()
_ALL_GROUPS = wire.CancelAtBody()


@routes.post("/api/v1/queues/{queue}/cancellations/{transactionId}", needs="push replay", tag="messages")
async def cancel(
    broker: Broker, queue: str, transactionId: str, body: wire.CancelBody = _DEFAULT
) -> wire.CancelledMessage:
    """Cancel a message by queue and transactionId, also while it is scheduled or being handled."""
    group = body.consumer_group
    return await broker.cancellations.cancel(queue, transactionId, partition=body.partition, group=group)


@routes.post(
    "/api/v1/messages/{partitionId}/{transactionId}/cancel",
    needs="push replay",
    each=True,
    tag="browse",
    name="cancellations.cancel",
)
async def cancel_at(
    broker: Broker, caller: Principal, partitionId: str, transactionId: str, body: wire.CancelAtBody = _ALL_GROUPS
) -> wire.CancelledMessage:
    """Cancel a message for every group that has not finished it."""
    await scopes.check_partitions(broker, caller, "push replay", [partitionId])
    return await broker.cancellations.at(partitionId, transactionId, group=body.consumer_group)


@routes.post("/api/v1/leases/cancelled", needs="pop", each=True, audited=False, tag="queues")
async def watch(broker: Broker, caller: Principal, body: wire.WatchBody) -> wire.CancelledInLeases:
    """List the messages that were cancelled while one of these leases held them. Can wait for the first."""
    found = await broker.cancellations.watch(body.leases, wait=body.timeout / 1000)
    if found and not caller.allows_all("pop"):
        names = await broker.queues.partition_names({PartitionId.parse(one.partition_id) for one in found})
        allowed = {str(id) for id, (queue, _) in names.items() if queue is not None and caller.allows("pop", queue)}
        found = [one for one in found if one.partition_id in allowed]
    return wire.CancelledInLeases(messages=found)
