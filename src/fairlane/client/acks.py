"""Acks in flight: merges the acks of one group into shared requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from fairlane.client.pipeline import RequestPipeline, Resend, settle
from fairlane.client.pops import affinity
from fairlane.client.resource import decode
from fairlane.client.transport import Call, Transport, path_of
from fairlane.errors import BrokerFailed, FairlaneError
from fairlane.model.outcome import AckItem, AckOutcome, Outcomes, UniformAcks
from fairlane.wire.ack import Ack, AckBatch, AckElement
from fairlane.wire.base import encode

_ACK = path_of("ack", "batch")
_FIELDS = AckOutcome.__struct_fields__

_ACK_BYTES = 300  # approximate size of an ack

QueueGroup = tuple[str, str]
"""The queue and group of some acks. The queue is an empty string if it is unknown."""


class AckCall(msgspec.Struct):
    """The acks of one call. Message n of the call belongs to the item `indexes[n]`."""

    items: Sequence[AckItem]
    acks: list[Ack]
    indexes: Sequence[int]
    failures: int = 0
    """Number of responses so far that asked for these acks to be sent again."""

    def __len__(self) -> int:
        return len(self.indexes)

    @property
    def lanes(self) -> set[str]:
        return {ack.partition_id for ack in self.acks}

    @property
    def size(self) -> int:
        return _ACK_BYTES * len(self.acks) + sum(len(ack.traceback) for ack in self.acks if ack.traceback)


class Acks:
    """The acks of a client, pipelined by group."""

    def __init__(self, transport: Transport, *, batching: bool) -> None:
        self._transport = transport
        self._batching = batching
        self._in_flight: dict[QueueGroup, RequestPipeline[AckCall, Sequence[AckOutcome]]] = {}

    async def send(self, group: QueueGroup, items: Sequence[AckItem]) -> Sequence[AckOutcome]:
        """Send acks and return one outcome for each item. Shares requests with other acks of the group."""
        if not items:
            return []
        call, spans = call_of(items), self._transport.spans
        send: Any = partial(self._request, group)
        if spans is not None:
            send = spans.traced_ack(*group, send)
        if not self._batching:
            return cast(Sequence[AckOutcome], await settle(send, call))
        in_flight = self._in_flight.get(group)
        if in_flight is None:
            in_flight = self._in_flight[group] = RequestPipeline(send)
        try:
            return await in_flight.put(call, call.lanes, call.size)
        finally:
            if in_flight.idle and self._in_flight.get(group) is in_flight:
                del self._in_flight[group]

    async def _request(
        self, group: QueueGroup, calls: list[AckCall]
    ) -> list[Sequence[AckOutcome] | Resend | Exception]:
        """Send all calls in one request. If that request is refused as a whole, send each call in its own."""
        acks = [ack for call in calls for ack in call.acks]
        body = encode(AckBatch(acks, group[1]))
        try:
            answer = await self._transport.exchange(Call("POST", _ACK, affinity(*group), body))
        except FairlaneError as error:
            return [error] * len(calls)
        if answer.status < 300:
            found = iter(decode(answer.body, list[AckElement]))
            return [outcomes_of(call, found) for call in calls]
        refusal = answer.error()
        # The broker may have failed because of a single call.
        if len(calls) > 1 and (not refusal.retryable or isinstance(refusal, BrokerFailed)):
            return await self._one_by_one(group, calls)
        return [self._again(call, refusal) for call in calls]

    async def _one_by_one(
        self, group: QueueGroup, calls: list[AckCall]
    ) -> list[Sequence[AckOutcome] | Resend | Exception]:
        """Send each call in its own request. Skips calls behind a call of the same lane that must be sent again."""
        outcomes: list[Sequence[AckOutcome] | Resend | Exception] = []
        waiting: set[str] = set()
        for call in calls:
            if waiting.isdisjoint(call.lanes):
                [found] = await self._request(group, [call])
            else:
                found = Resend(call, call.lanes, call.size, 0.0)
            if isinstance(found, Resend):
                waiting |= call.lanes
            outcomes.append(found)
        return outcomes

    def _again(self, call: AckCall, error: FairlaneError) -> Resend | FairlaneError:
        call.failures += 1
        seconds = self._transport.delay_after(error, call.failures)
        return error if seconds is None else Resend(call, call.lanes, call.size, seconds)

    async def drain(self) -> None:
        for in_flight in list(self._in_flight.values()):
            await in_flight.drain()


def call_of(items: Sequence[AckItem]) -> AckCall:
    """Build a call. Consecutive messages that are simply done become one ack."""
    acks: list[Ack] = []
    if not isinstance(items, UniformAcks) or items.verdict.status != "completed":
        _add(acks, items)
        return AckCall(items, acks, range(len(items)))
    order: list[int] = []
    for (partition, lease), indexes in items.lanes.items():
        positions = items.positions_of((partition, lease))
        if lease and type(positions) is range:
            acks.append(Ack("", str(partition), lease_id=lease, position=positions.start, count=len(positions)))
        else:
            _add(acks, [items[index] for index in indexes])
        order += indexes
    return AckCall(items, acks, order)


def _add(acks: list[Ack], items: Sequence[AckItem]) -> None:
    last: AckItem | None = None
    """The previous item, if the next one may extend its range."""
    for item in items:
        done = _is_done(item)
        if done and last is not None and _follows(item, last):
            acks[-1].transaction_id, acks[-1].count = "", (acks[-1].count or 1) + 1
        else:
            acks.append(_ack(item))
        last = item if done else None


def _follows(item: AckItem, last: AckItem) -> bool:
    return item.position == (last.position or 0) + 1 and item.partition == last.partition and item.lease == last.lease


def _is_done(item: AckItem) -> bool:
    """Return True if the ack only says that the message is done."""
    if item.status != "completed" or item.position is None or not item.lease or item.cumulative:
        return False
    return item.result is None and item.error is None and item.delay_ms is None


def outcomes_of(call: AckCall, found: Iterator[AckElement]) -> Outcomes:
    """Return the outcomes of a call from the next elements of the response."""
    outcomes, start = Outcomes(call.items), 0
    while start < len(call):
        element = next(found, None)
        if element is None or start + element.count > len(call):
            raise FairlaneError("unexpected answer from the server: it is about other acks")
        stop = start + element.count
        outcomes.add(call.indexes[start:stop], _outcome(element))
        start = stop
    return outcomes


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
        traceback=item.traceback,
    )


def _outcome(element: AckElement) -> AckOutcome:
    result = bytes(element.result) if element.result else None
    if element.operation_id is None:  # the common case
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
