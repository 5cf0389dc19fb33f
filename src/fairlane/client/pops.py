"""Pops: builds the query and decodes the batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from fairlane.client.resource import decode
from fairlane.model.batch import Batch, Run
from fairlane.model.decoding import Decode
from fairlane.model.ids import PartitionId
from fairlane.model.lease import PopRequest
from fairlane.model.message import Lane
from fairlane.model.moment import Moment
from fairlane.model.names import QUEUE_MODE
from fairlane.wire.pop import PopAnswer


def batch_of(body: bytes, read: Decode) -> Batch[Any]:
    if not body:
        return Batch("")
    answer = decode(body, PopAnswer)
    lanes: dict[str, Lane] = {}
    runs = []
    for one in answer.lanes:
        lane = lanes.get(one.partition_id)
        if lane is None:
            partition = PartitionId.parse(one.partition_id)
            lane = Lane(answer.queue, answer.consumer_group, answer.lease_id or None, one.partition, partition)
            lanes[one.partition_id] = lane
        runs.append(Run(lane, one.first, one.created_at, partial(_text, one.messages), one.failed_attempts))
    batch: Batch[Any] = Batch(
        answer.lease_id or "", runs, read, ordered=answer.ordered, lease_seconds=answer.lease_seconds
    )
    batch.retry_delay_ms = answer.retry_delay
    return batch


def _text(messages: msgspec.Raw) -> msgspec.Raw:
    return messages


def affinity(queue: str, group: str) -> str:
    """Return the server key of a queue and group, so that pops and their acks go to the same server."""
    return f"{queue}\0{group}"


def query_of(asked: PopRequest) -> dict[str, str | int]:
    """Return the query parameters of a pop."""
    subscription, query = asked.subscription, dict[str, str | int](batch=asked.batch, byLane="true")
    if asked.partitions != 1:
        query["partitions"] = asked.partitions
    if asked.group != QUEUE_MODE:
        query["consumerGroup"] = asked.group
    if asked.wait_seconds:
        query |= {"wait": "true", "timeout": round(asked.wait_seconds * 1000)}
    if subscription.mode == "time":
        query["subscriptionFrom"] = Moment(subscription.start or 0).isoformat()
    elif subscription.mode != "all":
        query["subscriptionMode"] = subscription.mode
    flags = {"conflation": subscription.conflation, "look": subscription.look, "autoAck": asked.auto_ack}
    query |= {name: "true" for name, on in flags.items() if on}
    if asked.lease_seconds is not None:
        query["leaseSeconds"] = asked.lease_seconds
    return query
