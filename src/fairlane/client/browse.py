"""Browsing: looking at stored messages without taking them."""

from __future__ import annotations

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import BrowsedMessage, MessagePage
from fairlane.client.wire import decode, timestamp
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.names import check_count, check_name


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
        query: dict[str, str | int] = {
            "from": timestamp(since),
            "limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX),
        }
        names = {"queue": queue, "partition": partition, "transactionId": transaction_id, "traceId": trace_id}
        query |= {name: check_name(name, given) for name, given in names.items() if given is not None}
        if before is not None:
            query["before"] = before
        return decode(await self._transport.ask("GET", path_of("messages"), query=query), MessagePage)

    async def message(self, partition_id: str, transaction_id: str) -> BrowsedMessage:
        """One message, whole. Raises NotFound."""
        message = (check_name("partition_id", str(partition_id)), check_name("transaction_id", transaction_id))
        return decode(await self._transport.ask("GET", path_of("messages", *message)), BrowsedMessage)
