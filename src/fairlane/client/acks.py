"""Acks on their way: verdicts on messages, merged per group with whatever else waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from fairlane.client.in_flight import Again, InFlight, settle
from fairlane.client.part import decode
from fairlane.client.pops import affinity
from fairlane.client.transport import Call, Transport, path_of
from fairlane.errors import BrokerFailed, FairlaneError
from fairlane.model.outcome import AckItem, AckOutcome, Alike, Outcomes
from fairlane.wire.ack import Ack, AckBatch, AckElement
from fairlane.wire.base import encode

_ACK = path_of("ack", "batch")
_FIELDS = AckOutcome.__struct_fields__

_ACK_BYTES = 300  # of an ack, about

QueueGroup = tuple[str, str]
"""(queue, group); the queue may be unknown, and is then empty."""


class _Call(msgspec.Struct):
    """A call on its way: its acks, of so many messages; the n-th of those is item `indexes[n]`."""

    items: Sequence[AckItem]
    acks: list[Ack]
    indexes: Sequence[int]
    failures: int = 0
    """Answers that said to send it again."""

    def __len__(self) -> int:
        return len(self.indexes)

    @property
    def lanes(self) -> set[str]:
        return {ack.partition_id for ack in self.acks}

    @property
    def size(self) -> int:
        return _ACK_BYTES * len(self.acks)


class Acks:
    """The acks of a client on their way, by group."""

    def __init__(self, transport: Transport, *, batching: bool) -> None:
        self._transport = transport
        self._batching = batching
        self._in_flight: dict[QueueGroup, InFlight[_Call, Sequence[AckOutcome]]] = {}

    async def send(self, group: QueueGroup, items: Sequence[AckItem]) -> Sequence[AckOutcome]:
        """One outcome for each item; together with what else waits for the same group."""
        if not items:
            return []
        call, spans = _call(items), self._transport.spans
        send: Any = partial(self._request, group)
        if spans is not None:
            send = spans.acking(*group, send)
        if not self._batching:
            return cast(Sequence[AckOutcome], await settle(send, call))
        in_flight = self._in_flight.get(group)
        if in_flight is None:
            in_flight = self._in_flight[group] = InFlight(send)
        try:
            return await in_flight.put(call, call.lanes, call.size)
        finally:
            if in_flight.idle and self._in_flight.get(group) is in_flight:
                del self._in_flight[group]

    async def _request(self, group: QueueGroup, calls: list[_Call]) -> list[Sequence[AckOutcome] | Again | Exception]:
        """One request for all calls, or one for each if they are refused as a whole."""
        acks = [ack for call in calls for ack in call.acks]
        body = encode(AckBatch(acks, group[1]))
        try:
            answer = await self._transport.exchange(Call("POST", _ACK, affinity(*group), body))
        except FairlaneError as error:
            return [error] * len(calls)
        if answer.status < 300:
            found = iter(decode(answer.body, list[AckElement]))
            return [_outcomes(call, found) for call in calls]
        refusal = answer.error()
        # What the broker stumbles over may be one of them.
        if len(calls) > 1 and (not refusal.retryable or isinstance(refusal, BrokerFailed)):
            return await self._one_by_one(group, calls)
        return [self._again(call, refusal) for call in calls]

    async def _one_by_one(
        self, group: QueueGroup, calls: list[_Call]
    ) -> list[Sequence[AckOutcome] | Again | Exception]:
        """Send each call in a request of its own, but none that would pass one of its lane that is sent again."""
        outcomes: list[Sequence[AckOutcome] | Again | Exception] = []
        waiting: set[str] = set()
        for call in calls:
            if waiting.isdisjoint(call.lanes):
                [found] = await self._request(group, [call])
            else:
                found = Again(call, call.lanes, call.size, 0.0)
            if isinstance(found, Again):
                waiting |= call.lanes
            outcomes.append(found)
        return outcomes

    def _again(self, call: _Call, error: FairlaneError) -> Again | FairlaneError:
        call.failures += 1
        seconds = self._transport.delay_after(error, call.failures)
        return error if seconds is None else Again(call, call.lanes, call.size, seconds)

    async def drain(self) -> None:
        for in_flight in list(self._in_flight.values()):
            await in_flight.drain()


def _call(items: Sequence[AckItem]) -> _Call:
    """The acks of a call. Those that say of messages in a row that they are done are one."""
    acks: list[Ack] = []
    if not isinstance(items, Alike) or items.verdict.status != "completed":
        _add(acks, items)
        return _Call(items, acks, range(len(items)))
    order: list[int] = []
    for (partition, lease), indexes in items.lanes.items():
        positions = items.positions_of((partition, lease))
        if lease and type(positions) is range:
            acks.append(Ack("", str(partition), lease_id=lease, position=positions.start, count=len(positions)))
        else:
            _add(acks, [items[index] for index in indexes])
        order += indexes
    return _Call(items, acks, order)


def _add(acks: list[Ack], items: Sequence[AckItem]) -> None:
    last: AckItem | None = None
    """The one before, if others may be in a row with it."""
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
    """Whether an ack says that a message is done, and no more."""
    if item.status != "completed" or item.position is None or not item.lease or item.cumulative:
        return False
    return item.result is None and item.error is None and item.delay_ms is None


def _outcomes(call: _Call, found: Iterator[AckElement]) -> Outcomes:
    """The outcomes of a call, of which the next elements of the answer tell."""
    outcomes, start = Outcomes(call.items), 0
    while start < len(call):
        element = next(found, None)
        if element is None or start + element.count > len(call):
            raise FairlaneError("the server's answer is not what a Fairlane broker says: it tells of other acks")
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
