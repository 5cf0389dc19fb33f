"""Pops: what is asked, and the batch that comes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from fairlane.client.part import decode, timestamp
from fairlane.errors import InvalidRequest
from fairlane.model.group import Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX, WAIT_SECONDS_MAX
from fairlane.model.message import Batch, Decode, Lane, Message
from fairlane.model.names import QUEUE_MODE, check_count, check_name
from fairlane.wire.pop import PopAnswer

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class PopOptions(TypedDict, total=False):
    """Options of a pop besides the type; the defaults are with `Client.pop`."""

    group: str
    batch: int
    partitions: int
    partition: str | None
    wait: float
    auto_ack: bool
    lease_seconds: int | None
    subscription: Subscription


def batch_of(body: bytes, queue: str, read: Decode) -> Batch[Any]:
    if not body:
        return Batch("", [])
    answer = decode(body, PopAnswer)
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
                decode=read,
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


def query_of(
    group: str,
    batch: int,
    partitions: int,
    wait: float,
    auto_ack: bool,
    lease_seconds: int | None,
    subscription: Subscription,
) -> dict[str, str | int]:
    """The query of a pop, checked."""
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
    if auto_ack:
        query["autoAck"] = "true"
    if lease_seconds is not None:
        query["leaseSeconds"] = check_count("lease_seconds", lease_seconds, least=1, most=LEASE_SECONDS_MAX)
    return query
