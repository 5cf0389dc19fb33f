"""The codec of journal entries: pushes and acks as entries, and back."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlane.broker.ack import AckRequest
from fairlane.broker.push_batch import PushRequest
from fairlane.model.ids import PartitionId
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckItem, AckStatus
from fairlane.store.contract.journal import Backlog, Entry, NewEntry


class _Message(msgspec.Struct, array_like=True):
    payload: bytes
    transaction_id: str
    trace_id: str | None
    type: str | None
    headers: dict[str, str] | None


class _Ack(msgspec.Struct, array_like=True):
    transaction_id: str
    status: AckStatus
    lease: str | None
    error: str | None
    delay_ms: int | None
    result: bytes | None
    position: int | None
    cumulative: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode_messages = msgspec.msgpack.Decoder(list[_Message]).decode
_decode_acks = msgspec.msgpack.Decoder(list[_Ack]).decode


def push_backlog(tenant: str, item: PushItem) -> Backlog:
    return Backlog("push", tenant, item.queue, item.partition)


def ack_backlog(request: AckRequest, item: AckItem) -> Backlog:
    return Backlog("ack", request.tenant, request.group, str(item.partition))


def push_entry(backlog: Backlog, messages: Sequence[tuple[PushItem, str]], id: UUID) -> NewEntry:
    """Messages of one partition, each with its transactionId."""
    rows = [
        _Message(bytes(item.payload), transaction_id, item.trace_id, item.type, item.headers)
        for item, transaction_id in messages
    ]
    return NewEntry(backlog, len(rows), _encode(rows), id)


def ack_entry(backlog: Backlog, items: Sequence[AckItem], id: UUID) -> NewEntry:
    rows = [
        _Ack(
            item.transaction_id,
            item.status,
            item.lease,
            item.error,
            item.delay_ms,
            item.result,
            item.position,
            item.cumulative,
        )
        for item in items
    ]
    return NewEntry(backlog, len(rows), _encode(rows), id)


def push_request(entry: Entry, body: bytes) -> PushRequest:
    backlog = entry.backlog
    items = [
        PushItem(
            queue=backlog.name,
            partition=backlog.partition,
            payload=message.payload,
            transaction_id=message.transaction_id,
            trace_id=message.trace_id,
            type=message.type,
            headers=message.headers,
        )
        for message in _decode_messages(body)
    ]
    return PushRequest(backlog.tenant, items, traced=True, operation_id=entry.id)


def ack_request(entry: Entry, body: bytes) -> AckRequest:
    backlog = entry.backlog
    partition = PartitionId.parse(backlog.partition)
    items = [
        AckItem(
            transaction_id=ack.transaction_id,
            partition=partition,
            status=ack.status,
            lease=ack.lease,
            error=ack.error,
            delay_ms=ack.delay_ms,
            result=ack.result,
            position=ack.position,
            cumulative=ack.cumulative,
        )
        for ack in _decode_acks(body)
    ]
    return AckRequest(backlog.tenant, backlog.name, items, entry.id)
