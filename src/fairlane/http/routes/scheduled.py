"""Scheduled messages: list, reschedule, cancel."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.wire.scheduled import Cancelled, RescheduleBody, Rescheduled, ScheduledPage, ScheduledQuery

routes = Routes("messages")
_ONE = "/api/v1/scheduled/{queue}/{partition}/{transactionId}"


@routes.get("/api/v1/scheduled/{queue}", needs="browse", live=True)
async def list_scheduled(broker: Broker, queue: str, query: ScheduledQuery) -> ScheduledPage:
    """List the scheduled messages of a queue, next due first."""
    return await broker.scheduled.page(queue, after=query.after, limit=query.limit)


@routes.post(_ONE, needs="push")
async def reschedule(
    broker: Broker, queue: str, partition: str, transactionId: str, body: RescheduleBody
) -> Rescheduled:
    """Change the delivery time of a scheduled message."""
    due_at = await broker.scheduled.reschedule(
        queue, transactionId, partition=partition, deliver_at=body.deliver_at, delay_ms=body.delay_ms
    )
    return Rescheduled(
        queue=queue,
        partition=partition,
        transaction_id=transactionId,
        rescheduled=due_at is not None,
        deliver_at=due_at,
    )


@routes.delete(_ONE, needs="push")
async def cancel(broker: Broker, queue: str, partition: str, transactionId: str) -> Cancelled:
    """Cancel a scheduled message."""
    cancelled = await broker.scheduled.cancel(queue, transactionId, partition=partition)
    return Cancelled(queue=queue, partition=partition, transaction_id=transactionId, cancelled=cancelled)
