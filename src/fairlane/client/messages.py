"""Stored messages: browse, delete, retry and dead-letter."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.client.resource import ClientResource
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.moment import When, micros_of
from fairlane.model.names import check_count, check_name, name_or_none
from fairlane.wire import browse as wire


class Messages(ClientResource):
    async def page(
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
        """Return a page of messages without their payloads, newest first, of one queue or of all.

        The filters are `since` (the time of creation), the transactionId and the trace. `before` is the `next` of the
        previous page.
        """
        names = {"queue": queue, "partition": partition, "transactionId": transaction_id, "traceId": trace_id}
        query: dict[str, str | int | None] = {name: name_or_none(name, given) for name, given in names.items()}
        limit = check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        query |= {"from": micros_of("since", since).isoformat(), "limit": limit, "before": before}
        return await self._call(wire.MessagePage, "GET", "messages", query=query)

    async def get(self, partition_id: str, transaction_id: str) -> wire.BrowsedMessage:
        """Return one message with its payload. Raises NotFound."""
        return await self._call(wire.BrowsedMessage, "GET", *_path(partition_id, transaction_id))

    async def delete(self, partition_id: str, transaction_id: str) -> None:
        """Delete a message for all groups. Raises NotFound."""
        await self._call(wire.DeletedMessage, "DELETE", *_path(partition_id, transaction_id))

    async def report_progress(self, items: Sequence[wire.ProgressItem]) -> int:
        """Store how far handlers are with messages that their leases hold. Returns the number of stored items."""
        body = wire.ProgressBody(items=list(items))
        return (await self._call(wire.ProgressStored, "POST", "leases", "progress", body=body)).stored

    async def retry(self, partition_id: str, transaction_id: str) -> str:
        """Push a copy of a dead or finished message. Returns the id of the copy."""
        return (await self._call(wire.RetriedMessage, "POST", *_path(partition_id, transaction_id), "retry")).message_id

    async def dead_letter(
        self, partition_id: str, transaction_id: str, *, group: str | None = None, error: str | None = None
    ) -> list[str]:
        """Make a message a dead letter, for one group or for every group that has not finished it.

        Returns those groups.
        """
        body = wire.DeadLetterBody(consumer_group=name_or_none("group", group), error=error)
        path = _path(partition_id, transaction_id)
        return (await self._call(wire.DeadLetteredMessage, "POST", *path, "dlq", body=body)).consumer_groups


def _path(partition_id: str, transaction_id: str) -> tuple[str, ...]:
    return "messages", check_name("partition_id", str(partition_id)), check_name("transaction_id", transaction_id)
