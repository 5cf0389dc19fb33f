"""Pop: lease messages, waiting for them if asked to; keep the lease longer, or give it back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, TypeVar, Unpack, overload

from fairlane.client.family import Family, decode, timestamp
from fairlane.client.transport import path_of
from fairlane.errors import InvalidRequest
from fairlane.model.group import Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX, RENEW_SECONDS, WAIT_SECONDS_MAX
from fairlane.model.message import Batch, Decode, Lane, Message, decoder_of
from fairlane.model.names import QUEUE_MODE, check_count, check_name
from fairlane.model.outcome import RenewOutcome
from fairlane.runtime.clock import wall_clock
from fairlane.wire.leases import ExtendBody, Released, Renewed
from fairlane.wire.pop import PopAnswer

T = TypeVar("T")

_ALL = Subscription()
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
Leased = str | Batch[Any] | Message[Any]
"""A lease, or what was given under it."""


class PopOptions(TypedDict, total=False):
    """Options of a pop besides the type; the defaults are with `Pops.pop`."""

    group: str
    batch: int
    partitions: int
    partition: str | None
    wait: float
    auto_ack: bool
    lease_seconds: int | None
    subscription: Subscription


class Pops(Family):
    @overload
    async def pop(self, queue: str, *, type: type[T], **options: Unpack[PopOptions]) -> Batch[T]: ...
    @overload
    async def pop(self, queue: str, *, type: Any = ..., **options: Unpack[PopOptions]) -> Batch[Any]: ...
    async def pop(
        self,
        queue: str,
        *,
        type: Any = Any,
        group: str = QUEUE_MODE,
        batch: int = 1,
        partitions: int = 1,
        partition: str | None = None,
        wait: float = 0.0,
        auto_ack: bool = False,
        lease_seconds: int | None = None,
        subscription: Subscription = _ALL,
    ) -> Batch[Any]:
        """Lease up to `batch` messages from up to `partitions` lanes, waiting up to `wait` seconds for the first.

        Empty when there was nothing. The payloads are decoded as `type`, anything msgspec can decode. `subscription`
        says where a group begins, whether it conflates, and whether it is a look, and counts at its first pop only.
        With `auto_ack` messages are finished when they leave the broker: what is lost on the way is lost.
        """
        query = _query(group, batch, partitions, wait, subscription)
        if auto_ack:
            query["autoAck"] = "true"
        if lease_seconds is not None:
            query["leaseSeconds"] = check_count("lease_seconds", lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        path = ["queue", check_name("queue", queue)]
        if partition is not None:
            path += ["partition", check_name("partition", partition)]
        read, spans = decoder_of(type), self._transport.spans
        since = 0 if spans is None else wall_clock()
        body = await self._transport.ask(
            "GET", path_of("pop", *path), key=affinity(queue, group), query=query, wait=wait
        )
        if not body:
            return Batch("", [])
        found = _batch(decode(body, PopAnswer), queue, read)
        if spans is not None and found:
            spans.received(found, queue, group, since=since)
        return found

    async def renew(self, lease: Leased, seconds: int | None = None) -> RenewOutcome:
        """Keep a lease for `seconds` from now, or longer if it had more left; of a batch for as long as its pop was
        given it, and otherwise for a minute, unless they are given. `renewed` is 0 if it ended."""
        if seconds is None:
            seconds = lease.lease_seconds if isinstance(lease, Batch) else RENEW_SECONDS
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        answer = await self._ask(Renewed, "POST", *_lease_path(lease, "extend"), body=ExtendBody(seconds=seconds))
        return RenewOutcome(answer.renewed, answer.new_expires_at)

    async def release(self, lease: Leased) -> int:
        """Give a lease back at once, without a charge; how many lanes it had."""
        return (await self._ask(Released, "POST", *_lease_path(lease, "release"))).released


def _lease_path(lease: Leased, verb: str) -> tuple[str, ...]:
    return "lease", check_name("lease", lease if isinstance(lease, str) else lease.lease), verb


def _batch(answer: PopAnswer, queue: str, decode: Decode) -> Batch[Any]:
    lanes: dict[str, Lane] = {}
    messages: list[Message[Any]] = []
    for popped in answer.messages:
        lane = lanes.get(popped.partition_id)
        if lane is None:
            partition = PartitionId.parse(popped.partition_id)
            lane = Lane(answer.queue or queue, popped.consumer_group, popped.lease_id, popped.partition, partition)
            lanes[popped.partition_id] = lane
        messages.append(
            Message(
                id=popped.id,
                transaction_id=popped.transaction_id,
                raw=popped.data,
                trace_id=popped.trace_id,
                type=popped.type,
                headers=popped.headers,
                position=popped.position,
                created_at=(popped.created_at - _EPOCH) // _MICROSECOND,
                lane=lane,
                decode=decode,
            )
        )
    for index, count in answer.failed_attempts.items():
        if index < len(messages):
            messages[index].failed_attempts = count
    batch = Batch(answer.lease_id or "", messages, ordered=answer.ordered, lease_seconds=answer.lease_seconds)
    batch.retry_delay_ms = answer.retry_delay
    return batch


def affinity(queue: str, group: str) -> str:
    """Pops of one queue and group, and the acks of what they gave, meet at one server."""
    return f"{queue}\0{group}"


def _query(group: str, batch: int, partitions: int, wait: float, subscription: Subscription) -> dict[str, str | int]:
    query: dict[str, str | int] = {"batch": check_count("batch", batch, least=1, most=BATCH_ITEMS_MAX)}
    if partitions != 1:
        query["partitions"] = check_count("partitions", partitions, least=1, most=BATCH_ITEMS_MAX)
    if check_name("group", group) != QUEUE_MODE:
        query["consumerGroup"] = group
    if not 0 <= wait <= WAIT_SECONDS_MAX:
        raise InvalidRequest(f"wait is {wait}; it must be between 0 and {WAIT_SECONDS_MAX} seconds")
    if wait:
        query |= {"wait": "true", "timeout": round(wait * 1000)}
    subscription.check()
    if subscription.mode == "time":
        query["subscriptionFrom"] = timestamp(subscription.from_at or 0)
    elif subscription.mode != "all":
        query["subscriptionMode"] = subscription.mode
    if subscription.conflation:
        query["conflation"] = "true"
    if subscription.look:
        query["look"] = "true"
    return query
