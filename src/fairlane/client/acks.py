"""Acks on their way: verdicts on messages, merged per group with whatever else waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from fairlane.client.in_flight import BYTES_MAX, ITEMS_MAX
from fairlane.client.part import decode
from fairlane.client.pops import affinity
from fairlane.client.transport import Transport, path_of
from fairlane.errors import BrokerFailed, FairlaneError
from fairlane.model.outcome import AckItem, AckOutcome
from fairlane.runtime.batcher import Batcher, BatchPolicy, Weight
from fairlane.wire.ack import Ack, AckBatch, AckElement
from fairlane.wire.base import encode

_ACK = path_of("ack", "batch")
_FIELDS = AckOutcome.__struct_fields__

_ONE_REQUEST = BatchPolicy(
    requests_max=ITEMS_MAX, items_max=ITEMS_MAX, bytes_max=BYTES_MAX, share_items=ITEMS_MAX
)  # in flight at a time: acks of a group are carried out in the order they were called

QueueGroup = tuple[str, str]
"""(queue, group); the queue may be unknown, and is then empty."""


class Acks:
    """The acks of a client on their way, by group."""

    def __init__(self, transport: Transport, *, batching: bool) -> None:
        self._transport = transport
        self._batching = batching
        self._batchers: dict[QueueGroup, Batcher[list[Ack], list[AckOutcome]]] = {}

    async def send(self, group: QueueGroup, items: Sequence[AckItem]) -> list[AckOutcome]:
        """One outcome for each item; together with what else waits for the same group."""
        if not items:
            return []
        batcher = self._batchers.get(group)
        if batcher is None:
            send, spans = partial(self._request, group), self._transport.spans
            batcher = self._batchers[group] = Batcher(
                send if spans is None else spans.acking(*group, send),
                _ONE_REQUEST,
                weigh=lambda call: Weight(len(call), 300 * len(call)),
                together=self._batching,
            )
        try:
            return await batcher.submit([_ack(item) for item in items])
        finally:
            if batcher.idle and self._batchers.get(group) is batcher:
                del self._batchers[group]

    async def _request(self, group: QueueGroup, calls: list[list[Ack]]) -> list[list[AckOutcome] | Exception]:
        """One request for all calls, or one for each if they are refused as a whole."""
        acks = [ack for call in calls for ack in call]
        try:
            body = await self._transport.ask("POST", _ACK, key=affinity(*group), body=encode(AckBatch(acks, group[1])))
        except FairlaneError as error:
            # What the broker stumbles over may be one of them.
            if len(calls) == 1 or (error.retryable and not isinstance(error, BrokerFailed)):
                return [error] * len(calls)
            return [(await self._request(group, [call]))[0] for call in calls]
        found = iter(decode(body, list[AckElement]))
        return [[_outcome(next(found)) for _ in call] for call in calls]

    async def drain(self) -> None:
        for batcher in list(self._batchers.values()):
            await batcher.drain()


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
    result = bytes(element.result) if element.result else None
    if element.operation_id is None:  # as nearly always
        return AckOutcome(
            element.success,
            element.transaction_id,
            element.noop,
            element.dead_lettered,
            element.lease_released,
            element.code,
            element.error,
            result,
        )
    return AckOutcome(**{name: getattr(element, name) for name in _FIELDS} | {"result": result})
