"""Messages as they lie in their queues: looking at them without taking them."""

from __future__ import annotations

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import MessagePage, StoredMessage
from fairlane.client.wire import decode, timestamp
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.names import check_count, check_name


class Stored(Family):
    async def messages(
        self,
        queue: str,
        *,
        partition: str | None = None,
        since: int = 0,
        limit: int = 100,
        before: str | None = None,
    ) -> MessagePage:
        """Messages of a queue without their payloads, newest first: those created at or after `since`, microseconds
        since 1970. `before` is the `next` of the page before."""
        query: dict[str, str | int] = {
            "queue": check_name("queue", queue),
            "from": timestamp(since),
            "limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX),
        }
        if partition is not None:
            query["partition"] = check_name("partition", partition)
        if before is not None:
            query["before"] = before
        return decode(await self._transport.ask("GET", path_of("messages"), query=query), MessagePage)

    async def message(self, partition_id: str, transaction_id: str) -> StoredMessage:
        """One message, whole. Raises NotFound."""
        place = (check_name("partition_id", str(partition_id)), check_name("transaction_id", transaction_id))
        return decode(await self._transport.ask("GET", path_of("messages", *place)), StoredMessage)
