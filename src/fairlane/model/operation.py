"""Operations: accepted pushes and acks that are applied later, in the order of their backlog."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal
from uuid import UUID

import msgspec

from fairlane.model.ids import PartitionId, id_key, uuid7_ms
from fairlane.model.outcome import AckItem, AckOutcome, Durability
from fairlane.model.segment import ids_of

OperationType = Literal["PUSH", "ACK_BATCH", "ACK_SINGLE"]
OperationStatus = Literal["pending", "processing", "completed", "failed", "discarded"]

PRIORITIES: Final[dict[OperationType, int]] = {"ACK_BATCH": 3, "ACK_SINGLE": 4, "PUSH": 5}
"""Priority of an operation by its type. The lowest is applied first."""

TIMEOUT_SECONDS = 30
"""Age after which any broker may take over a claim."""
RETRIES_MAX = 3
"""Permanent errors after which an operation is `failed` and its backlog continues."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `sequence` is its position in its backlog. The payload is dropped when it is completed."""

    id: UUID
    type: OperationType
    status: OperationStatus
    priority: int
    tenant: str
    queue: str
    partition_name: str
    group: str
    partition: PartitionId
    queue_id: int = 0
    group_id: int = 0
    """Group of an ack. 0 for pushes, because their backlog belongs to the partition."""
    sequence: int
    payload: bytes = b""
    size: int
    messages: int
    """Messages that it appends, which is the capacity that it reserves in the queue."""
    created_at: int
    started_at: int | None = None
    processed_at: int | None = None
    worker: str | None = None
    retries: int = 0
    error: str | None = None
    failed_at: int | None = None
    result: bytes | None = None
    durability: Durability = "store"
    """Location of the operation: the store, or the journal of this broker."""


class OperationCount(msgspec.Struct, frozen=True):
    """Number of operations of one type and status."""

    type: str
    priority: int
    status: str
    count: int
    oldest: int
    newest: int
    latency_seconds: float | None
    """Average time from acceptance to the end. None if none has ended."""


class BacklogDepth(msgspec.Struct, frozen=True):
    """Number of open operations of one backlog."""

    queue: str
    partition: str
    group: str
    open: int
    moved_at: int
    """Time when the first of them was accepted, or when the previous one ended."""


class PushPayload(msgspec.Struct):
    """Messages of a push, in their stored form with the closing brace."""

    messages: list[msgspec.Raw]
    doubt: bool = False
    """True if some of the messages may already be stored, by a push with an unknown outcome."""


class AckPayload(msgspec.Struct):
    group: str
    items: list[AckItem]


_encode = msgspec.json.Encoder().encode
_decode_push = msgspec.json.Decoder(PushPayload).decode
_decode_ack = msgspec.json.Decoder(AckPayload).decode


def push_payload(fragments: list[bytes], *, doubt: bool) -> bytes:
    tail = b',"doubt":true}' if doubt else b"}"
    return b'{"messages":[%b}]%b' % (b"},".join(fragments), tail)


class PushColumns(msgspec.Struct):
    """Columns of a `Slice`, read from a payload."""

    fragments: list[bytes]
    message_ids: list[str]
    transaction_ids: list[str]
    keys: list[int]
    id_times: list[int | None]
    given: list[bool]


def read_push(payload: bytes) -> PushColumns:
    stored = _decode_push(payload)
    fragments = [bytes(raw)[:-1] for raw in stored.messages]
    pairs = [ids_of(fragment) for fragment in fragments]
    texts = [transaction_id for _, transaction_id in pairs]
    return PushColumns(
        fragments,
        [message_id for message_id, _ in pairs],
        texts,
        [id_key(text) for text in texts],
        [uuid7_ms(text) for text in texts],
        [stored.doubt or message_id != text for message_id, text in pairs],
    )


def ack_type(acks: int) -> OperationType:
    return "ACK_SINGLE" if acks == 1 else "ACK_BATCH"


def ack_payload(group: str, items: list[AckItem]) -> bytes:
    return _encode(AckPayload(group, items))


def read_ack(payload: bytes) -> AckPayload:
    return _decode_ack(payload)


def ack_result(outcomes: Iterable[AckOutcome]) -> bytes:
    """Return the outcomes of acks as JSON."""
    return _encode({"items": [{"transactionId": one.transaction_id, **one.fields()} for one in outcomes]})
