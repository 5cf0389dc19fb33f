"""Pops: builds the query and decodes the batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.client.resource import decode
from fairlane.client.transport import Transport, path_of
from fairlane.model.batch import Batch, Run
from fairlane.model.decoding import Decode, decoder_of
from fairlane.model.ids import PartitionId
from fairlane.model.lease import PopRequest
from fairlane.model.message import Lane
from fairlane.model.moment import Moment
from fairlane.model.names import QUEUE_MODE
from fairlane.runtime.clock import wall_clock
from fairlane.wire.pop import PopAnswer

if TYPE_CHECKING:
    pass


class Pops:
    """The pops of a client."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def pop(self, asked: PopRequest, type: Any) -> Batch[Any]:
        spans = self._transport.spans
        since, key = 0 if spans is None else wall_clock(), affinity(asked.queue, asked.group)
        path, wait = path_of("pop", *where(asked)), asked.wait_seconds
        body = await self._transport.request("GET", path, key=key, query=query_of(asked), wait=wait)
        found = batch_of(body, decoder_of(type))
        if spans is not None and found:
            spans.record_pop(found, asked.queue, asked.group, since=since)
        return found


def where(asked: PopRequest) -> list[str]:
    """Return the parts of a path that name the queue and the partition of a pop."""
    return ["queue", asked.queue, *([] if asked.partition is None else ["partition", asked.partition])]


def batch_of(body: bytes, read: Decode) -> Batch[Any]:
    if not body:
        return Batch("")
    return decoded_batch(decode(body, PopAnswer), read)


def decoded_batch(answer: PopAnswer, read: Decode) -> Batch[Any]:
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
