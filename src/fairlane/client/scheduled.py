"""Scheduled messages: list, reschedule, cancel."""

from __future__ import annotations

from datetime import timedelta

from fairlane.client.resource import ClientResource
from fairlane.errors import InvalidRequest
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.message import PushItem
from fairlane.model.moment import When, moment_or_none
from fairlane.model.names import DEFAULT_PARTITION, check_count, check_name
from fairlane.wire.scheduled import Cancelled, RescheduleBody, Rescheduled, ScheduledPage


class ScheduledMessages(ClientResource):
    async def page(self, queue: str, *, after: str = "", limit: int = 100) -> ScheduledPage:
        """Return a page of scheduled messages of a queue, next due first. Raises NotFound."""
        query = {"limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX), "after": after or None}
        return await self._call(ScheduledPage, "GET", "scheduled", check_name("queue", queue), query=query)

    async def cancel(self, queue: str, transaction_id: str, *, partition: str = DEFAULT_PARTITION) -> bool:
        """Cancel a scheduled message. Returns False if it does not exist or was already delivered."""
        return (await self._call(Cancelled, "DELETE", *_path(queue, partition, transaction_id))).cancelled

    async def reschedule(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str = DEFAULT_PARTITION,
        deliver_at: When | None = None,
        delay_ms: timedelta | int | None = None,
    ) -> int | None:
        """Move a scheduled message to another time, or to a delay from now.

        Returns the new time, or None if the message is no longer scheduled.
        """
        if (deliver_at is None) == (delay_ms is None):
            raise InvalidRequest("give either deliver_at or delay_ms")
        item = PushItem(queue=queue, payload=b"", deliver_at=deliver_at, delay_ms=delay_ms)
        item.check_time()
        at, delay = item.due
        body = RescheduleBody(deliver_at=moment_or_none(at), delay_ms=delay)
        return (await self._call(Rescheduled, "POST", *_path(queue, partition, transaction_id), body=body)).deliver_at


def _path(queue: str, partition: str, transaction_id: str) -> tuple[str, ...]:
    names = check_name("queue", queue), check_name("partition", partition), check_name("transactionId", transaction_id)
    return "scheduled", *names
