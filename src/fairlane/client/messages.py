"""Messages that are stored: looked at without being taken, deleted, retried, given up."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.moment import When, micros_of
from fairlane.model.names import check_count, check_name, name_or_none
from fairlane.wire import browse as wire


class Messages(Part):
    async def list(
        self,
        queue: str | None = None,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        since: When = 0,
        limit: int = 100,
        before: str | None = None,
    ) -> wire.MessagePage:
        """Messages without their payloads, newest first, of a queue or of all: those created at or after `since`,
        microseconds since 1970, with this transactionId or of this trace. `before` is the `next` of the page before."""
        names = {"queue": queue, "partition": partition, "transactionId": transaction_id, "traceId": trace_id}
        query: dict[str, str | int | None] = {name: name_or_none(name, given) for name, given in names.items()}
        limit = check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        query |= {"from": micros_of("since", since).isoformat(), "limit": limit, "before": before}
        return await self._ask(wire.MessagePage, "GET", "messages", query=query)

    async def get(self, partition_id: str, transaction_id: str) -> wire.BrowsedMessage:
        """One message, whole. Raises NotFound."""
        return await self._ask(wire.BrowsedMessage, "GET", *_path(partition_id, transaction_id))

    async def delete(self, partition_id: str, transaction_id: str) -> None:
        """Delete a message: no group gets it any more. Raises NotFound."""
        await self._ask(wire.DeletedMessage, "DELETE", *_path(partition_id, transaction_id))

    async def retry(self, partition_id: str, transaction_id: str) -> str:
        """Push a dead or finished message again, as a copy that names it; the id of the copy."""
        return (await self._ask(wire.RetriedMessage, "POST", *_path(partition_id, transaction_id), "retry")).message_id

    async def dead_letter(
        self, partition_id: str, transaction_id: str, *, group: str | None = None, error: str | None = None
    ) -> List[str]:
        """Give a message up for a group, or for all that have not finished it; the groups."""
        body = wire.DeadLetterBody(consumer_group=name_or_none("group", group), error=error)
        path = _path(partition_id, transaction_id)
        return (await self._ask(wire.DeadLetteredMessage, "POST", *path, "dlq", body=body)).consumer_groups


def _path(partition_id: str, transaction_id: str) -> tuple[str, ...]:
    return "messages", check_name("partition_id", str(partition_id)), check_name("transaction_id", transaction_id)
