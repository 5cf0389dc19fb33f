"""Messages and batches, as a pop gives them to a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import msgspec

from fairlane.client.wire import micros
from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.limits import RENEW_SECONDS
from fairlane.wire.pop import PopAnswer, Popped

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Decode = Callable[[bytes | msgspec.Raw], Any]
_UNREAD = object()


class Message(Generic[T_co]):
    """A message as a pop delivered it.

    `data` is the payload as the type that the pop named. It is decoded when first asked for, so that a message that
    does not fit troubles nobody but its own handler.
    """

    __slots__ = (
        "_data",
        "_decode",
        "created_at",
        "failed_attempts",
        "group",
        "headers",
        "id",
        "lease",
        "partition",
        "partition_id",
        "position",
        "queue",
        "raw",
        "trace_id",
        "transaction_id",
        "type",
    )

    def __init__(self, popped: Popped, queue: str, partition_id: PartitionId, decode: Decode) -> None:
        self.id = popped.id
        self.transaction_id = popped.transaction_id
        self.queue = queue
        self.partition = popped.partition
        self.partition_id = partition_id
        self.position = popped.position
        """In its partition, if the broker told it: with it an ack is found faster."""
        self.group = popped.consumer_group
        self.lease = popped.lease_id or ""
        """Empty if the message was finished when it was delivered."""
        self.created_at = micros(popped.created_at)
        """Microseconds since 1970."""
        self.trace_id = popped.trace_id
        self.type = popped.type
        self.headers = popped.headers
        self.raw = popped.data
        """The producer's bytes: JSON."""
        self.failed_attempts = 0
        """Before this delivery, as far as the broker counts them."""
        self._decode = decode
        self._data: Any = _UNREAD

    @property
    def data(self) -> T_co:
        """The payload. InvalidRequest says what does not fit."""
        if self._data is _UNREAD:
            try:
                self._data = self._decode(self.raw)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidRequest(f"the data of message {self.id} does not fit: {error}") from None
        data: T_co = self._data
        return data

    def __repr__(self) -> str:
        return f"Message({self.id!r}, queue={self.queue!r}, partition={self.partition!r})"


class Batch(Sequence[Message[T]]):
    """A batch: the messages of one pop, in order. Empty when there was nothing. `lease` is "" if nothing needs an ack.
    `ordered`: nobody else is given messages of its partitions meanwhile. `lease_seconds`: how long the lease is."""

    def __init__(
        self, lease: str, messages: list[Message[T]], *, ordered: bool = False, lease_seconds: int = RENEW_SECONDS
    ) -> None:
        self.lease = lease
        self.lease_seconds = lease_seconds
        self.ordered = ordered
        self._messages = messages

    @overload
    def __getitem__(self, index: int) -> Message[T]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message[T]]: ...
    def __getitem__(self, index: int | slice) -> Message[T] | list[Message[T]]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message[T]]:
        return iter(self._messages)

    def __repr__(self) -> str:
        return f"Batch({len(self)} messages, lease={self.lease!r})"


def batch_of(answer: PopAnswer, queue: str, decode: Decode) -> Batch[Any]:
    ids: dict[str, PartitionId] = {}
    messages: list[Message[Any]] = []
    for popped in answer.messages:
        partition_id = ids.get(popped.partition_id)
        if partition_id is None:
            partition_id = ids[popped.partition_id] = PartitionId.parse(popped.partition_id)
        messages.append(Message(popped, answer.queue or queue, partition_id, decode))
    for index, count in answer.failed_attempts.items():
        if index < len(messages):
            messages[index].failed_attempts = count
    return Batch(answer.lease_id or "", messages, ordered=answer.ordered, lease_seconds=answer.lease_seconds)


def decoder_of(type: Any) -> Decode:
    """Payload bytes as `type`, which is anything that msgspec can decode."""
    try:
        return msgspec.json.Decoder(type).decode
    except (TypeError, NotImplementedError) as error:
        raise InvalidRequest(f"messages cannot be decoded as {type!r:.80}: {error}") from None
