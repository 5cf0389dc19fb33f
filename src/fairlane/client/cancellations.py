"""Cancellations: cancel messages, and watch the messages of leases."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.client.resource import ClientResource, decode
from fairlane.client.transport import path_of
from fairlane.model.names import DEFAULT_PARTITION, check_name, name_or_none
from fairlane.wire.base import encode
from fairlane.wire.cancellations import CancelBody, CancelledInLease, CancelledInLeases, CancelledMessage, WatchBody


class Cancellations(ClientResource):
    async def cancel(
        self, queue: str, transaction_id: str, *, partition: str = DEFAULT_PARTITION, group: str | None = None
    ) -> CancelledMessage:
        """Cancel a message, as `Client.cancel` does."""
        body = CancelBody(partition=check_name("partition", partition), consumer_group=name_or_none("group", group))
        path = "queues", check_name("queue", queue), "cancellations", check_name("transaction_id", transaction_id)
        return await self._call(CancelledMessage, "POST", *path, body=body)

    async def watch(self, leases: Sequence[str], *, wait: float = 0.0) -> list[CancelledInLease]:
        """Return the messages that were cancelled while one of these leases held them.

        Waits up to `wait` seconds for the first.
        """
        body = encode(WatchBody(leases=list(leases), timeout=round(wait * 1000)))
        answer = await self._transport.request("POST", path_of("leases", "cancelled"), body=body, wait=wait)
        return decode(answer, CancelledInLeases).messages
