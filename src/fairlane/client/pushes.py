"""Pushes in flight: merges single and bulk pushes into shared requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any, cast

import msgspec

from fairlane.client.errors import error_from_problem
from fairlane.client.operations import QueuedPushes
from fairlane.client.pipeline import RequestPipeline, Resend, settle
from fairlane.client.resource import decode
from fairlane.client.transport import Call, ServerResponse, Transport, path_of
from fairlane.errors import BrokerFailed, FairlaneError, Overloaded, QueueFull
from fairlane.model.ids import PartitionId, uuid7
from fairlane.model.limits import JSON_DEPTH_MAX
from fairlane.model.message import (
    PushItem,
    PushOptions,
    are_uniform_items,
    check_items,
    check_options,
    check_payloads,
)
from fairlane.model.moment import moment_or_none
from fairlane.model.nesting import check_depth
from fairlane.model.outcome import PushOutcome
from fairlane.model.payload import json_of
from fairlane.wire.base import encode
from fairlane.wire.push import Item, PushBody, PushedIds, PushElement, PushRefusal, UniformItem

_PUSH = f"{path_of('push')}?brief=true"
_ITEM_BYTES = 200  # approximate size of an item without its payload
_ROUNDS_MAX = 3  # other producers may fill the queue in the meantime
_LaneName = tuple[str, str | None]
JOURNAL_LANES_MAX = 10_000
"""Number of lanes with messages in a journal that a client remembers. The least recently used are forgotten."""


class _NotSent(FairlaneError):
    """The message was not sent: an earlier message of its lane must be sent again first."""


_NOT_SENT = _NotSent("the message was not sent")
_AGAIN = (Overloaded, BrokerFailed, _NotSent)


class Pushes:
    """The pushes of a client, pipelined."""

    def __init__(
        self, transport: Transport, queued: QueuedPushes, *, batching: bool, wait: bool, reorder: bool
    ) -> None:
        self._transport = transport
        self._queued = queued
        self._wait = wait
        self._store = self._stored if transport.spans is None else transport.spans.traced_push(self._stored)
        self._batching = batching
        self._direct = batching and transport.spans is None
        self._in_flight: RequestPipeline[list[Item], list[PushOutcome]] = RequestPipeline(self._send)
        self._reorder = reorder or len(transport.servers.urls) == 1
        self._journals: dict[_LaneName, str] = {}
        """URL of the server whose journal has messages of a lane, by lane. Brokers do not see each other's journals."""

    async def one(self, item: Item, *, own: bool) -> PushOutcome:
        """Push one item. Raises its error. `own` is True if its transactionId was generated for this call."""
        if self._direct:  # the common case: fewer coroutines make each push cheaper
            [outcome] = outcomes = await self._put([item])
            if outcome.status == "queued":
                return outcome
        else:
            [outcome] = outcomes = await self._store([item])
        if outcome.error is not None:
            raise outcome.error
        return (await self._settled(outcomes, [item], [own]))[0]

    async def many(self, items: list[Item], own: Sequence[bool]) -> list[PushOutcome]:
        """Push items and return one outcome for each."""
        return await self._settled(await self._store(items), items, own)

    async def _settled(self, outcomes: list[PushOutcome], items: list[Item], own: Sequence[bool]) -> list[PushOutcome]:
        """Wait for pushes that became operations, or give each a handle."""
        if {outcome.status for outcome in outcomes} == {"queued"}:  # the common case
            return outcomes
        if any(outcome.status == "buffered" for outcome in outcomes):
            if self._wait:
                outcomes = await self._queued.wait_all(outcomes)
            else:
                outcomes = list(map(self._queued.handle, outcomes))
        for made, item, outcome in zip(own, items, outcomes, strict=True):
            if made and outcome.status == "duplicate" and outcome.transaction_id == item.transaction_id:
                # A generated id can only be known from an earlier attempt of this call.
                outcome.status = "queued" if outcome.deliver_at is None else "scheduled"
        return outcomes

    async def _stored(self, items: list[Item]) -> list[PushOutcome]:
        if self._batching:
            return await self._put(items)
        return cast("list[PushOutcome]", await settle(self._send, items))

    def _put(self, items: list[Item]) -> asyncio.Future[list[PushOutcome]]:
        return self._in_flight.put(items, _lanes(items), _size(items))

    async def _send(self, calls: list[list[Item]]) -> list[list[PushOutcome] | Resend | Exception]:
        """Send all calls in one request.

        Items that were refused for overload, or because the broker failed, are sent again after a delay, before any
        later call of their lanes.
        """
        found: Sequence[list[PushOutcome] | Exception]
        try:
            found = await self._fit(calls)
        except FairlaneError as error:
            found = [error] * len(calls)
        return list(map(self._again, calls, found))

    def _again(self, call: list[Item], found: list[PushOutcome] | Exception) -> list[PushOutcome] | Resend | Exception:
        """Return the outcomes of a call, or a Resend with its items that must be sent again."""
        if isinstance(found, BrokerFailed) or (isinstance(call, _Rest) and isinstance(found, FairlaneError)):
            found = [_refused(item, found) for item in call]
        if isinstance(call, _Rest):  # only for these items: the others are stored
            found = _replaced(call.outcomes, call.indexes, found)
        if isinstance(found, Exception):
            return found
        refused = [index for index, one in enumerate(found) if one.error and isinstance(one.error, _AGAIN)]
        if not refused:
            return found
        rest = _Rest(call, found, refused)
        errors = {id(error): error for index in refused if (error := found[index].error) is not _NOT_SENT}
        rest.failures += bool(errors)
        delays = [self._transport.delay_after(cast(FairlaneError, one), rest.failures) for one in errors.values()]
        if None not in delays:
            return Resend(rest, _lanes(rest), _size(rest), max(cast("list[float]", delays), default=0.0))
        whole = found[0].error
        return whole if isinstance(whole, BrokerFailed) and {id(one.error) for one in found} == {id(whole)} else found

    async def _fit(self, calls: list[list[Item]]) -> list[list[PushOutcome] | Exception]:
        """Send all calls in one request, then resend those that would fit into a full queue by themselves.

        A queue without room for all of them refuses the calls together, even if some would fit.
        """
        outcomes = await self._request(calls)
        for _ in range(_ROUNDS_MAX if len(calls) > 1 else 0):
            fitting = _fitting(calls, outcomes)
            if not fitting:
                break
            again = await self._request([[calls[number][index] for index in indexes] for number, indexes in fitting])
            for (number, indexes), found in zip(fitting, again, strict=True):
                outcomes[number] = _replaced(outcomes[number], indexes, found)
        return outcomes

    async def _request(self, calls: list[list[Item]]) -> list[list[PushOutcome] | Exception]:
        """Send all calls in one request.

        If it is refused as a whole, send each call in its own, so that an invalid call does not fail the others.
        """
        items = [item for call in calls for item in call]
        url = None
        if self._journals:
            urls = {self._journals.get((item.queue, item.partition)) for item in items}
            if len(urls) > 1:
                return await self._by_journal(calls)
            [url] = urls
        body = encode(PushBody(items))
        answer = await self._transport.exchange(Call("POST", _PUSH, self._transport.own_key, body, url=url))
        if answer.body[:1] == b"{" and answer.status == 201:
            if url is not None:
                for item in items:
                    self._journals.pop((item.queue, item.partition), None)
            found = iter(_stored(answer, items))
            return [list(islice(found, len(call))) for call in calls]
        elements = _elements(answer, items)
        if elements is not None:
            following = iter(elements)
            outcomes = [[_outcome(item, next(following)) for item in call] for call in calls]
            self._note_journals(answer.url, calls, outcomes)
            return cast("list[list[PushOutcome] | Exception]", outcomes)
        error = answer.error()
        if isinstance(error, Overloaded):
            return [[_refused(item, error) for item in call] for call in calls]
        return [error] if len(calls) == 1 else await self._one_by_one(calls)

    def _note_journals(self, url: str, calls: list[list[Item]], outcomes: list[list[PushOutcome]]) -> None:
        """Update which lanes have messages in the journal of the server at `url`."""
        for call, answered in zip(calls, outcomes, strict=True):
            for item, outcome in zip(call, answered, strict=True):
                lane = item.queue, item.partition
                if outcome.durability == "journal" and not self._reorder:
                    self._journals.pop(lane, None)
                    if len(self._journals) >= JOURNAL_LANES_MAX:
                        del self._journals[next(iter(self._journals))]
                    self._journals[lane] = url
                elif outcome.error is None and self._journals:
                    self._journals.pop(lane, None)

    async def _by_journal(self, calls: list[list[Item]]) -> list[list[PushOutcome] | Exception]:
        """Send each item to the server whose journal has earlier messages of its lane, one server after another."""
        shares: dict[str | None, dict[int, list[int]]] = {}
        for number, call in enumerate(calls):
            for index, item in enumerate(call):
                url = self._journals.get((item.queue, item.partition))
                shares.setdefault(url, {}).setdefault(number, []).append(index)
        outcomes = [[_refused(item, _NOT_SENT) for item in call] for call in calls]
        for share in shares.values():
            parts = [[calls[number][index] for index in indexes] for number, indexes in share.items()]
            try:
                found = await self._request(parts)
            except FairlaneError as error:  # only for these items: the others are stored
                found = [error] * len(parts)
            for (number, indexes), part, one in zip(share.items(), parts, found, strict=True):
                each = (
                    [_refused(item, cast(FairlaneError, one)) for item in part] if isinstance(one, Exception) else one
                )
                _replaced(outcomes[number], indexes, each)
        return cast("list[list[PushOutcome] | Exception]", outcomes)

    async def _one_by_one(self, calls: list[list[Item]]) -> list[list[PushOutcome] | Exception]:
        """Send each call in its own request. Skips calls behind a call of the same lane that must be sent again."""
        outcomes: list[list[PushOutcome] | Exception] = []
        waiting: set[_LaneName] = set()
        for call in calls:
            found: list[PushOutcome] | Exception
            if waiting.isdisjoint(_lanes(call)):
                try:
                    [found] = await self._request([call])
                except FairlaneError as error:
                    found = error
            else:
                found = [_refused(item, _NOT_SENT) for item in call]
            outcomes.append(found)
            errors = [found] * len(call) if isinstance(found, Exception) else [one.error for one in found]
            waiting |= {
                (item.queue, item.partition) for item, one in zip(call, errors, strict=True) if isinstance(one, _AGAIN)
            }
        return outcomes

    async def drain(self) -> None:
        await self._in_flight.drain()


class _Rest(list[Item]):
    """The items of a call that must be sent again, and the outcomes of the call so far."""

    def __init__(self, call: list[Item], outcomes: list[PushOutcome], refused: list[int]) -> None:
        """Keep the items at the indexes `refused`. `call` may itself be the rest of a call."""
        items = dict(zip(call.indexes, call, strict=True)) if isinstance(call, _Rest) else call
        super().__init__([items[index] for index in refused])
        self.outcomes = outcomes
        self.indexes: list[int] = refused
        self.failures: int = call.failures if isinstance(call, _Rest) else 0


def _lanes(items: list[Item]) -> set[_LaneName]:
    return {(item.queue, item.partition) for item in items}


def _size(items: list[Item]) -> int:
    return sum([len(item.payload) + _ITEM_BYTES for item in items])


def prepare(items: Sequence[PushItem]) -> list[Item]:
    """Return the items in their wire form, each with a transactionId.

    Raises InvalidRequest with the index of the first invalid item.
    """
    if not (plain := are_uniform_items(items)):
        check_items(items)
    check_payloads(items)
    ids, _, _ = uuid7.many(len(items))
    if plain:
        return [
            UniformItem(item.queue, msgspec.Raw(item.payload), item.partition, item.transaction_id or id)  # type: ignore[misc]
            for item, id in zip(items, ids, strict=True)
        ]
    return [
        Item(
            queue=item.queue,
            payload=msgspec.Raw(item.payload),
            partition=item.partition,
            transaction_id=item.transaction_id or id,
            trace_id=item.trace_id,
            type=item.type,
            headers=item.headers,
            deliver_at=moment_or_none(item.due[0]),
            delay_ms=item.due[1],
            priority=item.priority,
            max_attempts=item.max_attempts,
            unique=item.unique,
            unique_key=item.unique_key,
        )
        for item, id in zip(items, ids, strict=True)
    ]


def item_of(queue: str, data: Any, options: PushOptions) -> Item:
    """Check one item and give it a transactionId, so that every attempt to push it has the same id."""
    check_options(options)
    payload = json_of("the data", data, encode)
    item = Item(queue=queue, payload=msgspec.Raw(payload), **cast(Any, options))  # `check` converts times
    if item.transaction_id is None:
        item.transaction_id = uuid7()
    item.check()
    if len(payload) > 2 * JSON_DEPTH_MAX:  # a shorter payload cannot be nested too deeply
        check_depth(payload)
    return item


def _stored(answer: ServerResponse, items: list[Item]) -> list[PushOutcome]:
    """Return the outcomes if every item was stored in a queue without a limit, which is the common case."""
    pushed = decode(answer.body, PushedIds)
    partitions = [one for text, count in pushed.partitions for one in [PartitionId.parse(text)] * count]
    if not len(items) == len(pushed.message_ids) == len(partitions):
        raise FairlaneError("unexpected answer from the server: it is about other messages")
    return [
        PushOutcome("queued", item.transaction_id or "", id, partition)
        for item, id, partition in zip(items, pushed.message_ids, partitions, strict=True)
    ]


def _elements(answer: ServerResponse, items: list[Item]) -> list[PushElement] | None:
    """Return the response element of each item, or None if the response is about the whole request."""
    try:
        if answer.body[:1] == b"[":
            elements = decode(answer.body, list[PushElement])
        else:
            elements = decode(answer.body, PushRefusal).results
    except FairlaneError:
        return None
    return elements if len(elements) == len(items) else None


def _outcome(item: Item, element: PushElement) -> PushOutcome:
    status: Any = element.status
    partition = None if element.partition_id is None else PartitionId.parse(element.partition_id)
    if status in ("queued", "duplicate", "scheduled", "buffered"):
        depth, remaining = element.queue_depth, element.remaining_capacity
        return PushOutcome(
            status,
            (item.unique and element.transaction_id) or item.transaction_id or "",
            element.message_id,
            partition,
            depth=None if remaining is None else depth,
            capacity=None if remaining is None else depth + remaining,
            deliver_at=element.deliver_at,
            operation_id=element.operation_id,
            queue_position=element.queue_position,
            reason=cast(Any, element.reason),
            estimated_wait=element.estimated_wait,
            durability=cast(Any, element.durability),
        )
    return _refused(item, error_from_problem(element))


def _refused(item: Item, error: FairlaneError) -> PushOutcome:
    return PushOutcome("refused", item.transaction_id or "", error=error)


def _fitting(calls: list[list[Item]], outcomes: list[list[PushOutcome] | Exception]) -> list[tuple[int, list[int]]]:
    """Return the calls that were refused by a full queue but fit without the others, with their refused items.

    A call behind an earlier refused call of its lane is left out.
    """
    free: Counter[str] = Counter()
    known: set[str] = set()
    left: set[_LaneName] = set()
    fitting = []
    for number, (call, answered) in enumerate(zip(calls, outcomes, strict=True)):
        if isinstance(answered, Exception):
            continue
        full = {index: one.error for index, one in enumerate(answered) if isinstance(one.error, QueueFull)}
        if not full:
            continue
        wanted: Counter[str] = Counter()
        for index, error in full.items():
            queue = call[index].queue
            if queue not in known:
                known.add(queue)
                free[queue] = error.capacity - error.depth
            wanted[queue] += 1
        lanes = {(call[index].queue, call[index].partition) for index in full}
        if wanted <= free and left.isdisjoint(lanes):
            free -= wanted
            fitting.append((number, list(full)))
        else:
            left |= lanes
    return fitting


def _replaced(
    outcomes: list[PushOutcome] | Exception, indexes: list[int], found: list[PushOutcome] | Exception
) -> list[PushOutcome] | Exception:
    if isinstance(outcomes, Exception) or isinstance(found, Exception):
        return found
    for index, outcome in zip(indexes, found, strict=True):
        outcomes[index] = outcome
    return outcomes
