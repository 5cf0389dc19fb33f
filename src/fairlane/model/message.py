"""Messages as they are pushed and as they are popped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.decoding import decode_any
from fairlane.model.ids import PartitionId, is_uuid
from fairlane.model.limits import (
    BATCH_ITEMS_MAX,
    HEADER_CHARS_MAX,
    HEADERS_MAX,
    JSON_DEPTH_MAX,
    MESSAGE_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SECONDS_MAX,
    TYPE_CHARS_MAX,
)
from fairlane.model.moment import MICROS_MAX, Moment, When, micros_of, millis_of
from fairlane.model.names import DEFAULT_PARTITION, are_plain, check_count, check_name, is_known, is_plain, known_names
from fairlane.model.nesting import check_depth
from fairlane.model.payload import json_of
from fairlane.model.queue import PRIORITY_MAX
from fairlane.model.unique import Unique, check_unique

T_co = TypeVar("T_co", covariant=True)


class PushOptions(TypedDict, total=False):
    """Options of a message to push. `PushItem` has their defaults."""

    partition: str
    transaction_id: str | None
    trace_id: str | None
    type: str | None
    headers: dict[str, str] | None
    max_attempts: int | None
    deliver_at: When | None
    delay_ms: timedelta | int | None
    priority: int | None
    unique: Unique | None
    unique_key: str | None


OPTIONS = PushOptions.__optional_keys__


def check_options(options: PushOptions) -> None:
    """Raise TypeError for an option that a push does not take."""
    if not options.keys() <= OPTIONS:
        raise TypeError(f"push() got an unexpected keyword argument {min(options.keys() - OPTIONS)!r}")


class PushItem(msgspec.Struct, kw_only=True, rename="camel"):
    """One message to store. `payload` is JSON as bytes and is never parsed."""

    queue: str
    payload: bytes | msgspec.Raw
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None
    type: str | None = None
    headers: dict[str, str] | None = None
    deliver_at: When | None = None
    """Time before which the message is not delivered.

    A datetime needs a time zone; a number is microseconds since 1970.
    """
    delay_ms: timedelta | int | None = None
    """Delay before the message is delivered, in milliseconds if it is a number."""
    priority: int | None = None
    """Priority from 0 to 9: of the message in an unordered queue, of its partition from now on in an ordered one."""
    max_attempts: int | None = None
    """Total number of attempts of each group, instead of the queue's `retry_limit` + 1."""
    unique: Unique | None = None
    """Store the message only if no other message with its key is waiting, or waiting or running."""
    unique_key: str | None = None
    """Key for `unique`. None for the type and the payload."""
    producer_sub: str | None = None
    """Subject of the credential that pushed the message. It never comes from the body of a request."""

    @staticmethod
    def of(queue: str, data: Any, **options: Unpack[PushOptions]) -> PushItem:
        """Return an item whose payload is `data` as JSON. Raises InvalidRequest if it cannot be written."""
        return PushItem(queue=queue, payload=json_of("the data", data), **options)

    def check(self) -> None:
        """Raise InvalidRequest if a store or a reader could not hold this item. The caller checks the JSON syntax."""
        if type(self.queue) is not str or not is_known(self.queue):
            check_name("queue", self.queue)
        if type(self.partition) is not str or not is_known(self.partition):
            check_name("partition", self.partition)
        if self.transaction_id is not None and not is_plain(self.transaction_id):
            check_name("transactionId", self.transaction_id)
        if self.trace_id is not None and not is_uuid(self.trace_id):
            raise InvalidRequest(f"traceId must be a UUID, not {self.trace_id!r:.80}")
        if self.type is not None:
            check_name("type", self.type, chars_max=TYPE_CHARS_MAX)
        if self.headers is not None:
            check_headers(self.headers)
        if type(self.payload) is not bytes and not isinstance(self.payload, msgspec.Raw):
            kind = type(self.payload).__name__
            raise InvalidRequest(f"payload must be JSON as bytes, not {kind}; PushItem.of(queue, data) writes it")
        if len(self.payload) > MESSAGE_BYTES_MAX:
            raise InvalidRequest(
                f"payload has {len(self.payload)} bytes; at most {MESSAGE_BYTES_MAX} are allowed; "
                "store larger data elsewhere, and push where it is"
            )
        if self.priority is not None:
            check_count("priority", self.priority, least=0, most=PRIORITY_MAX)
        if self.max_attempts is not None:
            check_count("maxAttempts", self.max_attempts, least=1, most=BATCH_ITEMS_MAX)
        if self.unique is not None or self.unique_key is not None:
            check_unique(self.unique, self.unique_key)
        if self.producer_sub is not None:
            check_name("producerSub", self.producer_sub)
        if self.deliver_at is not None or self.delay_ms is not None:
            self.check_time()

    @property
    def due(self) -> tuple[int | None, int | None]:
        """Return (`deliver_at` in microseconds since 1970, `delay_ms`) of a checked item."""
        return cast("tuple[int | None, int | None]", (self.deliver_at, self.delay_ms))

    @property
    def has_options(self) -> bool:
        """Return True if the item has a delivery time, a priority or a trace, or is unique."""
        scheduled = self.deliver_at is not None or self.delay_ms is not None
        return scheduled or self.priority is not None or self.trace_id is not None or self.unique is not None

    def check_time(self) -> None:
        """Convert `deliver_at` or `delay_ms` to a number. Raises InvalidRequest if it is invalid or both are given."""
        if self.deliver_at is not None and self.delay_ms is not None:
            raise InvalidRequest("give either deliverAt or delayMs, not both")
        if self.deliver_at is not None:
            self.deliver_at = micros_of("deliverAt", self.deliver_at)
            if self.deliver_at == MICROS_MAX:  # texts with a later time are parsed as this one
                raise InvalidRequest("deliverAt must be before 2255")
        if self.delay_ms is not None:
            self.delay_ms = millis_of("delayMs", self.delay_ms, most=SECONDS_MAX * 1000)


def check_headers(headers: object) -> None:
    if not isinstance(headers, dict):
        raise InvalidRequest(f"headers must be a map of strings, not {type(headers).__name__}")
    if len(headers) > HEADERS_MAX:
        raise InvalidRequest(f"a message may have {HEADERS_MAX} headers, not {len(headers)}")
    total = 0
    for name, value in headers.items():
        check_name("a header's name", name)
        if value != "":
            check_name(f"header {name!r:.80}", value, chars_max=HEADER_CHARS_MAX)
        total += len(name) + len(value)
    if total > HEADER_CHARS_MAX:
        raise InvalidRequest(f"headers have {total} characters in all; at most {HEADER_CHARS_MAX} are allowed")


def are_uniform_items(items: Sequence[object]) -> bool:
    """Return True if a request can take the fast path: known names, plain ids, and nothing else but a payload."""
    if not isinstance(items, Sequence) or not 0 < len(items) <= BATCH_ITEMS_MAX:
        return False
    plain: list[PushItem] = [
        item
        for item in items
        if type(item) is PushItem
        and type(item.queue) is str
        and type(item.partition) is str
        and type(item.payload) is bytes
        and item.trace_id is None
        and item.type is None
        and item.headers is None
        and item.deliver_at is None
        and item.delay_ms is None
        and item.priority is None
        and item.max_attempts is None
        and item.unique is None
        and item.unique_key is None
        and item.producer_sub is None
    ]
    if len(plain) < len(items):
        return False
    if len(plain) == 1:  # the common case of producers that push single messages
        [item] = plain
        known = item.queue in known_names and item.partition in known_names
        id = item.transaction_id
        return known and len(item.payload) <= MESSAGE_BYTES_MAX and (id is None or is_plain(id))
    names = {item.queue for item in plain}
    names.update([item.partition for item in plain])
    ids = [item.transaction_id for item in plain if item.transaction_id is not None]
    sizes = [len(item.payload) for item in plain]
    return (
        names <= known_names.keys()
        and max(sizes) <= MESSAGE_BYTES_MAX
        and sum(sizes) <= REQUEST_BYTES_MAX
        and (not ids or (set(map(type, ids)) == {str} and are_plain(ids)))
    )


def check_items(items: Sequence[PushItem]) -> bool:
    """Check the items of one request. Returns True if one of them has options besides its payload.

    Raises InvalidRequest with the index of the first bad item.
    """
    return not are_uniform_items(items) and check_each(items)


def check_each(items: Sequence[PushItem]) -> bool:
    """Check the items of one request like `check_items`, without its fast path."""
    if not isinstance(items, Sequence):
        raise InvalidRequest("a push takes a list of PushItem")
    if len(items) > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"a push may have {BATCH_ITEMS_MAX} items, not {len(items)}")
    size = 0
    special = False
    for index, item in enumerate(items):
        if not isinstance(item, PushItem):
            raise InvalidRequest(f"item {index} is not a PushItem but {type(item).__name__}")
        try:
            item.check()
        except InvalidRequest as error:
            raise InvalidRequest(f"item {index}: {error}") from None
        special = special or item.has_options
        size += len(item.payload)
    if size > REQUEST_BYTES_MAX:
        raise InvalidRequest(f"a push may have {REQUEST_BYTES_MAX} bytes of payload, not {size}")
    return special


_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


def check_payloads(items: Sequence[PushItem]) -> None:
    """Check the payloads of all items together, which is cheaper than one by one."""
    payloads = [item.payload for item in items]
    try:
        joined = b"[%b]" % b",".join(payloads)
        # Each payload must keep its length, or neighbours could complete each other's brackets.
        if joined.isascii() and list(map(len, _decode_raws(joined))) == list(map(len, payloads)):
            for payload in payloads:
                if len(payload) > 2 * JSON_DEPTH_MAX:
                    check_depth(bytes(payload))
            return
    except (msgspec.DecodeError, RecursionError, TypeError, InvalidRequest):
        pass  # the check of each item below finds the error and its index
    for index, payload in enumerate(payloads):
        try:
            check_payload(payload)
        except InvalidRequest as error:
            raise InvalidRequest(f"item {index}: {error}") from None


def check_payload(payload: bytes | msgspec.Raw) -> None:
    """Raise InvalidRequest unless `payload` is one JSON value in UTF-8, no deeper than the limit.

    An invalid stored payload would break every response that contains it.
    """
    check_json("payload", payload, bytes_max=MESSAGE_BYTES_MAX)


def check_json(what: str, text: bytes | msgspec.Raw, *, bytes_max: int) -> None:
    """Raise InvalidRequest unless `text` is one JSON value in UTF-8, within its limits."""
    if type(text) is not bytes:
        if not isinstance(text, msgspec.Raw):
            raise InvalidRequest(f"{what} must be JSON as bytes, not {type(text).__name__}")
        text = bytes(text)
    if len(text) > bytes_max:
        raise InvalidRequest(f"{what} has {len(text)} bytes; at most {bytes_max} are allowed")
    try:
        if not text.isascii():
            text.decode()
        _decode_raw(text)
        if len(text) > 2 * JSON_DEPTH_MAX:  # shorter texts cannot be nested too deeply
            check_depth(text)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{what} is not valid UTF-8 at byte {error.start}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"{what} is not JSON: {error}") from None


class Lane(msgspec.Struct, frozen=True):
    """The lane of some messages, and their lease."""

    queue: str
    group: str
    lease: str | None
    """Id of the lease. None if no ack is needed."""
    partition: str
    partition_id: PartitionId


NOWHERE = Lane("", "", None, "", PartitionId(0, 0))


class Message(msgspec.Struct, Generic[T_co], rename="camel"):
    """A message, as a pop of a client or a broker returns it, or as a worker's handler gets it.

    `data` is the payload as the type that the pop named. It is decoded on first access, so that a message that does not
    fit affects only its own handler.
    """

    id: str
    transaction_id: str
    raw: msgspec.Raw = msgspec.field(name="data")
    """The producer's bytes, as JSON."""
    trace_id: str | None = None
    type: str | None = None
    headers: dict[str, str] | None = None
    max_attempts: int | None = None
    """Attempts that the push of this message named. None for the limit of the queue."""
    priority: int = 0
    """Priority from 0 to 9 that the push of this message named."""
    producer_sub: str | None = None
    """Subject of the credential that pushed the message."""
    position: int = -1
    """Position in the partition. -1 if the broker did not send it."""
    created_at: Moment = Moment(0)
    """Time of the push."""
    failed_attempts: int = 0
    """Failed attempts before this delivery that the broker counted."""
    lane: Lane = NOWHERE
    decode: Any = decode_any
    decoded: Any = msgspec.UNSET

    @property
    def data(self) -> T_co:
        """The payload. Raises InvalidRequest if it does not fit the type."""
        if self.decoded is msgspec.UNSET:
            try:
                self.decoded = self.decode(self.raw)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidRequest(f"the data of message {self.id} does not fit: {error}") from None
        data: T_co = self.decoded
        return data

    @property
    def queue(self) -> str:
        return self.lane.queue

    @property
    def partition(self) -> str:
        return self.lane.partition

    @property
    def partition_id(self) -> PartitionId:
        return self.lane.partition_id

    @property
    def group(self) -> str:
        return self.lane.group

    @property
    def lease(self) -> str:
        """Id of the lease. Empty if the message was finished when it was delivered."""
        return self.lane.lease or ""

    def __repr__(self) -> str:
        return f"Message({self.id!r}, queue={self.queue!r}, partition={self.partition!r})"
