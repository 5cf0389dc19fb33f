"""Scheduled messages: list, reschedule, cancel."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import ScheduledPage
from fairlane.client.wire import decode, timestamp
from fairlane.errors import InvalidRequest
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_PARTITION, check_count, check_name
from fairlane.wire.base import encode


class _Cancelled(msgspec.Struct):
    cancelled: bool = False


class _Rescheduled(msgspec.Struct, rename="camel"):
    deliver_at: Moment | None = None


class ScheduledMessages(Family):
    async def scheduled(self, queue: str, *, after: str = "", limit: int = 100) -> ScheduledPage:
        """Messages of a queue that wait for their time, next due first. Raises NotFound."""
        query: dict[str, str | int] = {"limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)}
        if after:
            query["after"] = after
        path = path_of("scheduled", check_name("queue", queue))
        return decode(await self._transport.ask("GET", path, query=query), ScheduledPage)

    async def cancel(self, queue: str, transaction_id: str, *, partition: str = DEFAULT_PARTITION) -> bool:
        """Forget a scheduled message; False if it does not wait (any more)."""
        path = _path(queue, partition, transaction_id)
        return decode(await self._transport.ask("DELETE", path), _Cancelled).cancelled

    async def reschedule(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str = DEFAULT_PARTITION,
        deliver_at: int | None = None,
        delay_ms: int | None = None,
    ) -> int | None:
        """Let a scheduled message be due at a time (microseconds since 1970) or after a delay from now; that time,
        None if it does not wait (any more)."""
        if (deliver_at is None) == (delay_ms is None):
            raise InvalidRequest("say when with deliver_at or with delay_ms")
        when: dict[str, Any] = {"delayMs": delay_ms} if deliver_at is None else {"deliverAt": timestamp(deliver_at)}
        path = _path(queue, partition, transaction_id)
        return decode(await self._transport.ask("POST", path, body=encode(when)), _Rescheduled).deliver_at


def _path(queue: str, partition: str, transaction_id: str) -> str:
    names = check_name("queue", queue), check_name("partition", partition), check_name("transactionId", transaction_id)
    return path_of("scheduled", *names)
