"""Browsing: pages of messages, one message in detail, and actions on it."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.auth import scopes
from fairlane.http.router import Routes
from fairlane.model.principal import Principal
from fairlane.wire import browse as wire

routes = Routes("browse")
_ONE = "/api/v1/messages/{partitionId}/{transactionId}"
_ALL_GROUPS = wire.DeadLetterBody()


@routes.get("/api/v1/messages", needs="browse", each=True, live=True)
async def list_messages(broker: Broker, caller: Principal, query: wire.MessageQuery) -> wire.MessagePage:
    """List messages without their payload, newest first."""
    scopes.check(caller, "browse", query.queue)
    return await broker.messages.browse.page(query)


@routes.get(_ONE, needs="browse", each=True, live=True)
async def show(broker: Broker, caller: Principal, partitionId: str, transactionId: str) -> wire.BrowsedMessage:
    """Show one message with its payload and its status for each group."""
    await scopes.check_partitions(broker, caller, "browse", [partitionId])
    return await broker.messages.get(partitionId, transactionId)


@routes.get(f"{_ONE}/result", needs="browse push", each=True, long=True)
async def result(
    broker: Broker, caller: Principal, partitionId: str, transactionId: str, query: wire.ResultQuery
) -> wire.MessageResult:
    """Show the outcome of a message for a group, with the result of its ack. Can wait for it."""
    await scopes.check_partitions(broker, caller, "browse push", [partitionId])
    return await broker.results.at(partitionId, transactionId, group=query.consumer_group, wait=query.wait_seconds)


@routes.post("/api/v1/leases/progress", needs="pop", each=True, audited=False, tag="queues")
async def progress(broker: Broker, caller: Principal, body: wire.ProgressBody) -> wire.ProgressStored:
    """Report how far handlers are with messages that their leases hold. Others are ignored."""
    await scopes.check_partitions(broker, caller, "pop", [one.partition_id for one in body.items])
    return wire.ProgressStored(stored=await broker.messages.report_progress(body.items))


@routes.get("/api/v1/queues/{queue}/results/{transactionId}", needs="browse push", long=True)
async def result_by_name(
    broker: Broker, queue: str, transactionId: str, query: wire.NamedResultQuery
) -> wire.MessageResult:
    """Show the outcome of a message by queue and transactionId, also if it is accepted but not stored yet."""
    group, wait = query.consumer_group, query.wait_seconds
    return await broker.results.get(queue, transactionId, partition=query.partition, group=group, wait=wait)


@routes.delete(_ONE, needs="purge", each=True)
async def delete(broker: Broker, caller: Principal, partitionId: str, transactionId: str) -> wire.DeletedMessage:
    """Delete a message, so that no group gets it."""
    await scopes.check_partitions(broker, caller, "purge", [partitionId])
    await broker.messages.delete(partitionId, transactionId)
    return wire.DeletedMessage(partition_id=partitionId, transaction_id=transactionId)


@routes.post(f"{_ONE}/retry", needs="replay", each=True)
async def retry(broker: Broker, caller: Principal, partitionId: str, transactionId: str) -> wire.RetriedMessage:
    """Push a copy of a dead or finished message."""
    await scopes.check_partitions(broker, caller, "replay", [partitionId])
    message_id = await broker.messages.retry(partitionId, transactionId)
    return wire.RetriedMessage(partition_id=partitionId, transaction_id=transactionId, message_id=message_id)


@routes.post(f"{_ONE}/dlq", needs="replay", each=True)
async def dead_letter(
    broker: Broker, caller: Principal, partitionId: str, transactionId: str, body: wire.DeadLetterBody = _ALL_GROUPS
) -> wire.DeadLetteredMessage:
    """Dead-letter a message for a group, or for all groups that have not finished it."""
    await scopes.check_partitions(broker, caller, "replay", [partitionId])
    groups = await broker.messages.dead_letter(partitionId, transactionId, group=body.consumer_group, error=body.error)
    return wire.DeadLetteredMessage(partition_id=partitionId, transaction_id=transactionId, consumer_groups=groups)
