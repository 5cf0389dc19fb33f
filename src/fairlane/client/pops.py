"""Pops: what is asked, and the batch that comes back."""

from __future__ import annotations

from typing import Any

from fairlane.client.part import decode, timestamp
from fairlane.model.ids import PartitionId
from fairlane.model.lease import PopRequest
from fairlane.model.message import Batch, Decode, Lane, Message
from fairlane.model.names import QUEUE_MODE
from fairlane.wire.pop import Origin, PopAnswer


def batch_of(body: bytes, queue: str, read: Decode) -> Batch[Any]:
    if not body:
        return Batch("", [])
    answer = decode(body, PopAnswer)
    lanes: dict[str, Lane] = {}
    messages = decode(answer.messages, list[Message[Any]])
    for message, origin in zip(messages, decode(answer.messages, list[Origin]), strict=True):
        lane = lanes.get(origin.partition_id)
        if lane is None:
            partition = PartitionId.parse(origin.partition_id)
            lane = Lane(answer.queue or queue, origin.consumer_group, origin.lease_id, origin.partition, partition)
            lanes[origin.partition_id] = lane
        message.lane, message.decode = lane, read
    for index, count in answer.failed_attempts.items():
        if index < len(messages):
            messages[index].failed_attempts = count
    batch = Batch(answer.lease_id or "", messages, ordered=answer.ordered, lease_seconds=answer.lease_seconds)
    batch.retry_delay_ms = answer.retry_delay
    return batch


def affinity(queue: str, group: str) -> str:
    """Pops of one queue and group, and the acks of what they gave, meet at one server."""
    return f"{queue}\0{group}"


def query_of(asked: PopRequest) -> dict[str, str | int]:
    """The query of a pop."""
    subscription, query = asked.subscription, dict[str, str | int](batch=asked.batch)
    if asked.partitions != 1:
        query["partitions"] = asked.partitions
    if asked.group != QUEUE_MODE:
        query["consumerGroup"] = asked.group
    if asked.wait_seconds:
        query |= {"wait": "true", "timeout": round(asked.wait_seconds * 1000)}
    if subscription.mode == "time":
        query["subscriptionFrom"] = timestamp(subscription.from_at or 0)
    elif subscription.mode != "all":
        query["subscriptionMode"] = subscription.mode
    flags = {"conflation": subscription.conflation, "look": subscription.look, "autoAck": asked.auto_ack}
    query |= {name: "true" for name, on in flags.items() if on}
    if asked.lease_seconds is not None:
        query["leaseSeconds"] = asked.lease_seconds
    return query
