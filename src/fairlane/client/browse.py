"""Browsing: looking at stored messages without taking them."""

from __future__ import annotations

from fairlane.client.family import Family, timestamp
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.names import check_count, check_name, name_or_none
from fairlane.wire.browse import BrowsedMessage, MessagePage


class Browse(Family):
    """Pages of stored messages, and one of them whole."""

    async def messages(
        self,
        queue: str | None = None,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        since: int = 0,
        limit: int = 100,
        before: str | None = None,
    ) -> MessagePage:
        """Messages without their payloads, newest first, of a queue or of all: those created at or after `since`,
        microseconds since 1970, with this transactionId or of this trace. `before` is the `next` of the page before."""
        names = {"queue": queue, "partition": partition, "transactionId": transaction_id, "traceId": trace_id}
        query: dict[str, str | int | None] = {name: name_or_none(name, given) for name, given in names.items()}
        limit = check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        query |= {"from": timestamp(since), "limit": limit, "before": before}
        return await self._ask(MessagePage, "GET", "messages", query=query)

    async def message(self, partition_id: str, transaction_id: str) -> BrowsedMessage:
        """One message, whole. Raises NotFound."""
        message = (check_name("partition_id", str(partition_id)), check_name("transaction_id", transaction_id))
        return await self._ask(BrowsedMessage, "GET", "messages", *message)
