"""Ack: verdicts on messages; merged per group with whatever else waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import msgspec

from fairlane.client.family import REQUESTS, Family, decode
from fairlane.client.pops import affinity
from fairlane.client.transport import Transport, path_of
from fairlane.errors import BrokerFailed, FairlaneError, InvalidRequest
from fairlane.model.message import Message
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.outcome import AckItem, AckOutcome, AckStatus, check_acks
from fairlane.model.verdict import ack_item
from fairlane.runtime.batcher import Batcher, Weight
from fairlane.wire.ack import Ack, AckBatch, AckElement
from fairlane.wire.base import encode

_ACK = path_of("ack", "batch")

QueueGroup = tuple[str, str]
"""(queue, group); the queue may be unknown, and is then empty."""


class Acks(Family):
    def __init__(self, transport: Transport, *, batching: bool) -> None:
        super().__init__(transport, batching=batching)
        self._acks: dict[QueueGroup, Batcher[list[Ack], list[AckOutcome]]] = {}

    async def ack(
        self,
        messages: Message[Any] | Sequence[Message[Any]],
        status: AckStatus = "completed",
        *,
        error: str | None = None,
        delay_ms: int | None = None,
        result: Any = msgspec.UNSET,
    ) -> list[AckOutcome]:
        """Say the same of some messages of one group; one outcome each. A lease that ended is an outcome."""
        some = [messages] if isinstance(messages, Message) else list(messages)
        if not some:
            return []
        if not all(isinstance(message, Message) for message in some):
            raise InvalidRequest("an ack is about what a pop delivered; use ack_many for anything else")
        groups = {(message.queue, message.group) for message in some}
        if len({group for _, group in groups}) > 1:
            raise InvalidRequest("one ack is about messages of one group")
        items = [ack_item(message, status, error, delay_ms, result) for message in some]
        check_acks(items)
        return await self._ack(groups.pop(), items)

    async def nack(
        self,
        messages: Message[Any] | Sequence[Message[Any]],
        *,
        error: str | None = None,
        delay_ms: int | None = None,
    ) -> list[AckOutcome]:
        """These failed: the first of each lane comes again, by the queue's backoff or after `delay_ms`."""
        return await self.ack(messages, "failed", error=error, delay_ms=delay_ms)

    async def ack_many(self, items: Sequence[AckItem], *, group: str = QUEUE_MODE, queue: str = "") -> list[AckOutcome]:
        """Say different things of messages of one group; one outcome each. If they are all of one `queue`, naming
        it sends the acks where its pops went."""
        check_name("group", group)
        check_acks(items)
        return await self._ack((queue, group), items) if items else []

    async def _ack(self, group: QueueGroup, items: Sequence[AckItem]) -> list[AckOutcome]:
        batcher = self._acks.get(group)
        if batcher is None:
            send, spans = partial(self._send_acks, group), self._transport.spans
            batcher = self._acks[group] = Batcher(
                send if spans is None else spans.acking(*group, send),
                REQUESTS,
                weigh=lambda call: Weight(len(call), 300 * len(call)),
                together=self._batching,
            )
        try:
            return await batcher.submit([_ack(item) for item in items])
        finally:
            if batcher.idle and self._acks.get(group) is batcher:
                del self._acks[group]

    async def _send_acks(self, group: QueueGroup, calls: list[list[Ack]]) -> list[list[AckOutcome] | Exception]:
        """One request for all calls, or one for each if they are refused as a whole."""
        acks = [ack for call in calls for ack in call]
        try:
            body = await self._transport.ask("POST", _ACK, key=affinity(*group), body=encode(AckBatch(acks, group[1])))
        except FairlaneError as error:
            # What the broker stumbles over may be one of them.
            if len(calls) == 1 or (error.retryable and not isinstance(error, BrokerFailed)):
                return [error] * len(calls)
            return [(await self._send_acks(group, [call]))[0] for call in calls]
        found = iter(decode(body, list[AckElement]))
        return [[_outcome(next(found)) for _ in call] for call in calls]

    async def _drain(self) -> None:
        for batcher in list(self._acks.values()):
            await batcher.drain()
        await super()._drain()


def _ack(item: AckItem) -> Ack:
    return Ack(
        item.transaction_id,
        str(item.partition),
        item.status,
        item.lease,
        None,
        item.error,
        item.delay_ms,
        msgspec.UNSET if item.result is None else msgspec.Raw(item.result),
        item.cumulative or None,
        item.position,
    )


def _outcome(element: AckElement) -> AckOutcome:
    return AckOutcome(
        element.success,
        element.transaction_id,
        noop=element.noop,
        dead_lettered=element.dlq,
        lease_released=bool(element.lease_released),
        code=element.code,
        error=element.error,
        result=bytes(element.result) if element.result else None,
        operation_id=element.operation_id,
        durability=cast(Any, element.durability),
        queue_position=element.queue_position,
        reason=cast(Any, element.reason),
        estimated_wait=element.estimated_wait,
    )
