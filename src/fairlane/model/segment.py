"""The bytes of a segment: consecutive messages of one partition in one stored row.

Each message is a JSON object without its closing brace:
`{"id":"..","transactionId":"..","traceId":null,"maxAttempts":3,"priority":9,"producerSub":"..","type":"..",
"headers":{..},"data":..`, with the bytes pushed and without the line break. A pop appends what only it knows
(createdAt, partition, lease) and a `}`. One that has nothing but its data is
`{"id":"..","transactionId":"..","data":..`. `ends` holds the offset after each message, `keys` the 64-bit key of each
transactionId. A message of an encrypted queue ends with `"sealed":"<base64>"` instead of its data.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from fairlane.errors import SealError, StoreCorrupt
from fairlane.model.limits import SEGMENT_BYTES_MAX
from fairlane.model.message import Message, PushItem
from fairlane.model.moment import Moment

encode = msgspec.json.Encoder().encode


class Fragment(Message[Any], rename="camel", kw_only=True):
    """A stored message with its closing brace. A sealed message has no data."""

    raw: msgspec.Raw = msgspec.field(name="data", default=msgspec.Raw(b"null"))
    sealed: str | None = None


class _Head(msgspec.Struct, rename="camel"):
    transaction_id: str


_decode_fragment = msgspec.json.Decoder(Fragment).decode
_decode_heads = msgspec.json.Decoder(list[_Head]).decode
_IDS = re.compile(rb'\{"id":"([0-9a-f-]{36})","transactionId":("(?:[^"\\]|\\.)*")')
_TRACE_ID = re.compile(rb',"traceId":"([0-9A-Fa-f-]{36})"')
_NUMBERS = rb',"traceId":(?:null|"[0-9A-Fa-f-]*")(?:,"maxAttempts":[0-9]+)?(,"priority":[0-9])?'
_PRODUCER = re.compile(_NUMBERS + rb',"producerSub":("(?:[^"\\]|\\.)*")')
_PRIORITY = re.compile(_NUMBERS)
_MAX_ATTEMPTS = re.compile(rb'(?:null|"[0-9A-Fa-f-]*"),"maxAttempts":([0-9]+)')
ID_AT = len('{"id":""') + 36 + len(',"transactionId":"')
"""Offset of the transactionId in a fragment."""
HEAD_BYTES = 3300
"""Bytes of a fragment that always include its ids and its producer."""


def pack(message_id: str, transaction_id: str, item: PushItem) -> bytes:
    """Return the stored form of one message."""
    # Ids that the broker generated need no quoting.
    quoted = f'"{message_id}"' if transaction_id is message_id else encode(transaction_id).decode()
    if (
        item.trace_id is None
        and item.type is None
        and item.headers is None
        and item.max_attempts is None
        and not item.priority
        and item.producer_sub is None
    ):
        return f'{{"id":"{message_id}","transactionId":{quoted},"data":'.encode() + item.payload
    head = f'{{"id":"{message_id}","transactionId":{quoted}'.encode()
    head += b',"traceId":null' if item.trace_id is None else b',"traceId":"%b"' % item.trace_id.encode()
    if item.max_attempts is not None:
        head += b',"maxAttempts":%d' % item.max_attempts
    if item.priority:
        head += b',"priority":%d' % item.priority
    if item.producer_sub is not None:
        head += PRODUCER + encode(item.producer_sub)
    if item.type is not None:
        head += b',"type":' + encode(item.type)
    if item.headers is not None:
        head += b',"headers":' + encode(item.headers)
    return b'%b,"data":%b' % (head, item.payload)


PLAIN = b'{"id":"%b","transactionId":"%b","data":%b'
"""`pack` for a message with only a payload, whose ids need no quoting."""
TRACE = b',"traceId":'
NULL_FIELDS = b'"traceId":null,"producerSub":null,"priority":0,'
SEALED = b',"sealed":"'
PRODUCER = b',"producerSub":'


def may_be_sealed(body: bytes) -> bool:
    """Return True if a segment may hold sealed messages.

    Either all of its messages are sealed or none. The last byte rules out most segments: only a payload that is a
    string ends like a sealed message.
    """
    return body[-1:] == b'"' and SEALED in body


def split_data(fragment: bytes) -> tuple[bytes, bytes]:
    """Split an unsealed fragment into the part before its data, and its data."""
    data = bytes(_decode_fragment(fragment + b"}").raw)
    return fragment[: -len(data) - len(b',"data":')], data


def unpack(fragment: bytes, *, position: int, created_at: int, locked: bool = False) -> Message[Any]:
    """Return the message that `pack` turned into `fragment`. With `locked`, sealed messages have no data."""
    try:
        message = _decode_fragment(fragment + b"}")
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"the stored message at position {position} cannot be read: {error}") from None
    if message.sealed is not None and not locked:
        raise SealError(f"the message at position {position} is sealed, and this broker has no key to open it")
    message.position, message.created_at = position, Moment(created_at)
    return message


def ids_of(fragment: bytes) -> tuple[str, str]:
    """Return (id, transactionId) of a fragment, which may be cut off after them."""
    match = _IDS.match(fragment)
    if match is None:
        raise StoreCorrupt("a stored message does not begin with its ids")
    return match[1].decode(), msgspec.json.decode(match[2], type=str)


def ids_only(fragment: bytes) -> bytes:
    """Return a fragment that has only the ids of this one."""
    id, transaction_id = ids_of(fragment)
    return b'{"id":"%b","transactionId":%b,"data":null' % (id.encode(), msgspec.json.encode(transaction_id))


def head_of(fragment: bytes) -> tuple[str, str, str | None, str | None]:
    """Return (id, transactionId, traceId, producerSub) of a fragment, which may be cut to HEAD_BYTES."""
    match = _IDS.match(fragment)
    if match is None:
        raise StoreCorrupt("a stored message does not begin with its ids")
    trace = _TRACE_ID.match(fragment, match.end())
    producer = _PRODUCER.match(fragment, match.end())
    return (
        match[1].decode(),
        msgspec.json.decode(match[2], type=str),
        trace[1].decode() if trace else None,
        msgspec.json.decode(producer[2], type=str) if producer else None,
    )


def retry_limit_of(fragment: bytes) -> int | None:
    """Return the number of retries that a message names. None if it names none.

    Only its head can contain this key: strings before it cannot, because quotes in them are escaped.
    """
    _, key, rest = fragment.partition(b'","data":')[0].partition(TRACE)
    match = _MAX_ATTEMPTS.match(rest) if key else None
    return int(match[1]) - 1 if match else None


def may_be_traced(fragments: Sequence[bytes]) -> bool:
    """Return True if some messages may have a traceId. A payload may cause a false positive."""
    return any(b',"traceId":"' in fragment for fragment in fragments)


def traces_of(fragments: Sequence[bytes]) -> list[tuple[int, str]]:
    """Return (index, traceId) of the messages that have one."""
    return [
        (index, trace_id.lower())
        for index, fragment in enumerate(fragments)
        if b',"traceId":"' in fragment and (trace_id := head_of(fragment)[2]) is not None
    ]


def null_fields(fragment: bytes) -> bytes:
    """Return the fields that a popped message must have and this fragment omits, as `"name":null,` each."""
    match = _IDS.match(fragment)
    named = _PRIORITY.match(fragment, match.end()) if match is not None else None
    if named is None:
        return NULL_FIELDS
    producer = b"" if PRODUCER in fragment and head_of(fragment)[3] is not None else b'"producerSub":null,'
    return producer if named[1] else producer + b'"priority":0,'


def closed(fragments: Sequence[bytes]) -> bytes:
    """Return one or more fragments as a JSON array of complete objects."""
    return b"[" + b"},".join(fragments) + b"}]"


def transaction_ids(fragments: Sequence[bytes]) -> list[str]:
    """Return the transactionIds of complete fragments, in order."""
    if not fragments:
        return []
    return [head.transaction_id for head in _decode_heads(closed(fragments))]


def cuts(lengths: Sequence[int]) -> Sequence[tuple[int, int]]:
    """Return where to cut messages of these lengths, so that no segment with several of them exceeds the limit."""
    if sum(lengths) <= SEGMENT_BYTES_MAX:
        return ((0, len(lengths)),)
    found = []
    low = size = 0
    for index, length in enumerate(lengths):
        if size and size + length > SEGMENT_BYTES_MAX:
            found.append((low, index))
            low, size = index, 0
        size += length
    return [*found, (low, len(lengths))]


def checksum(body: bytes) -> int:
    return zlib.crc32(body)


class Segment(msgspec.Struct, frozen=True):
    """One stored row, as read."""

    first: int
    created_at: int
    ends: Sequence[int]
    body: bytes
    checksum: int

    def check(self) -> None:
        """Raise StoreCorrupt if the bytes do not match their checksum."""
        if zlib.crc32(self.body) != self.checksum:
            raise StoreCorrupt(f"the segment at position {self.first} does not match its checksum")

    def fragments(self, first: int, upto: int) -> list[bytes]:
        """Return the stored bytes of positions `first` to `upto` - 1 that are in this segment. Raises StoreCorrupt."""
        self.check()
        return self.cut(first, upto)

    def cut(self, first: int, upto: int) -> list[bytes]:
        """Return the bytes like `fragments`, of a segment that was checked before."""
        body, ends = self.body, self.ends
        count, start = len(ends), 0
        if first > self.first or upto < self.first + count:
            low, high = max(0, first - self.first), min(count, upto - self.first)
            if low >= high:
                return []
            start, ends = ends[low - 1] if low else 0, ends[low:high]
        return [body[low:high] for low, high in zip((start, *ends[:-1]), ends, strict=True)]


class Opened(Segment, frozen=True):
    """A decrypted segment."""


class Verified(Segment, frozen=True, eq=False):
    """A segment whose bytes this process checked against their checksum, or from which it computed the checksum.

    They are compared by identity, so that they can be keys of caches.
    """

    def check(self) -> None:
        """Do nothing: the bytes have not left this process since."""


def messages(segments: Sequence[Segment], first: int, upto: int) -> Iterator[Message[Any]]:
    """Yield the messages at positions `first` to `upto` - 1, in order."""
    for segment in segments:
        position = max(first, segment.first)
        for fragment in segment.fragments(first, upto):
            yield unpack(fragment, position=position, created_at=segment.created_at)
            position += 1
