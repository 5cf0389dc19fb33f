"""A batch: the messages of one pop, and acks with one verdict for many messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast, overload

import msgspec

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.decoding import Decode
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, RENEW_SECONDS, SECONDS_MAX
from fairlane.model.message import Lane, Message
from fairlane.model.moment import Moment, millis_of
from fairlane.model.outcome import COMPLETED, AckItem, AckOutcome, AckStatus, UniformAcks, check_acks
from fairlane.model.verdict import ack_item

T = TypeVar("T")
_decode_messages = msgspec.json.Decoder(list[Message[Any]]).decode


class Run(msgspec.Struct):
    """Consecutive messages of one lane, as a pop delivered them."""

    lane: Lane
    first: int
    """Position of the first message."""
    created_at: list[tuple[int, int]]
    """(number of messages, their created_at), segment by segment."""
    text: Callable[[], bytes | msgspec.Raw]
    """The stored form of the messages, as a JSON array."""
    failed_attempts: int = 0
    """Failed attempts of the first message. Later messages are on their first attempt."""

    @property
    def positions(self) -> range:
        return range(self.first, self.first + sum([count for count, _ in self.created_at]))

    def messages(self, decode: Decode) -> list[Message[Any]]:
        times = chain.from_iterable(repeat(Moment(at), count) for count, at in self.created_at)
        try:
            found = _decode_messages(self.text())
            for message, position, created_at in zip(found, self.positions, times, strict=True):
                message.position, message.created_at, message.lane = position, created_at, self.lane
                message.decode = decode
        except ValueError as error:  # msgspec's errors are ValueErrors
            raise FairlaneError(f"unexpected answer from the server: {error}") from None
        if found:
            found[0].failed_attempts = self.failed_attempts
        return found


class Batch(Sequence[Message[T]]):
    """The messages of one pop, in order. Empty if the pop found none.

    `lease` is "" if no ack is needed. While an `ordered` batch is leased, no other consumer gets messages of its
    partitions. `lease_seconds` is the length of the lease.
    """

    def __init__(
        self,
        lease: str,
        runs: Sequence[Run] = (),
        decode: Decode | None = None,
        *,
        ordered: bool = False,
        lease_seconds: int = RENEW_SECONDS,
    ) -> None:
        self.lease = lease
        self.lease_seconds = lease_seconds
        self.retry_delay_ms = 0
        """Backoff of the queue in milliseconds. 0 if it has none."""
        self.ordered = ordered
        self.runs = runs
        """Runs that the messages are decoded from."""
        self._decode = decode
        self._count = sum([len(run.positions) for run in runs])
        self._messages: list[Message[T]] | None = None

    @property
    def messages(self) -> list[Message[T]]:
        """All messages, decoded on first access. Counting and acking do not decode them."""
        if self._messages is None:
            self._messages = (
                [] if self._decode is None else [one for run in self.runs for one in run.messages(self._decode)]
            )
        return self._messages

    @overload
    def __getitem__(self, index: int) -> Message[T]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message[T]]: ...
    def __getitem__(self, index: int | slice) -> Message[T] | list[Message[T]]:
        return self.messages[index]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message[T]]:
        return iter(self.messages)

    def __repr__(self) -> str:
        return f"Batch({len(self)} messages, lease={self.lease!r})"


Finished = Message[Any] | Sequence[Message[Any]] | Sequence[AckItem]
"""Messages that are done, or acks of messages."""


class AckedAndPopped(NamedTuple):
    """The answer of `ack_and_pop`: the outcomes of the acks, and the next messages."""

    outcomes: Sequence[AckOutcome]
    batch: Batch[Any]
    error: FairlaneError | None = None
    """Error of the pop. The acks have their outcomes nevertheless."""


def acks_of(
    given: Message[Any] | Sequence[Message[Any]],
    status: AckStatus = "completed",
    error: str | None = None,
    delay: timedelta | int | None = None,
    result: Any = msgspec.UNSET,
) -> tuple[str, str, Sequence[AckItem]]:
    """Return (queue, group, acks) with the same verdict for all given messages. Names are empty if there are none."""
    some = given if isinstance(given, Batch) else [given] if isinstance(given, Message) else list(given or ())
    if given is None or (not isinstance(some, Batch) and set(map(type, some)) - {Message}):
        raise InvalidRequest("ack takes messages that a pop returned; use ack_many for anything else")
    if len(some) > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"an ack may have {BATCH_ITEMS_MAX} items, not {len(some)}")
    runs = _runs(some)
    groups = {lane.group: lane.queue for lane, _ in runs}
    if len(groups) > 1:
        raise InvalidRequest("one ack takes messages of one group")
    delay_ms = None if delay is None else millis_of("delay_ms", delay, most=SECONDS_MAX * 1000)
    [(group, queue)] = groups.items() or [("", "")]
    if result is not msgspec.UNSET:
        items = [ack_item(message, status, error, delay_ms, result) for message in some]
        check_acks(items)
        return queue, group, items
    verdict = msgspec.structs.replace(COMPLETED, status=status, error=error, delay_ms=delay_ms)
    verdict.check()
    return queue, group, _uniform_acks(runs, lambda: [message.transaction_id for message in some], verdict)


def acks_with_pop(given: Finished, group: str) -> Sequence[AckItem]:
    """Return the acks of a request that also pops for `group`: the given ones, or acks that complete the messages."""
    if not isinstance(given, Message | Batch) and not (given and isinstance(given[0], Message)):
        items = cast(Sequence[AckItem], given)
        check_acks(items)
        return items
    _, of, items = acks_of(cast(Sequence[Message[Any]], given))
    if of not in ("", group):
        raise InvalidRequest(f"these messages are of group {of!r:.80}, and the pop is for group {group!r:.80}")
    return items


def _runs(messages: Sequence[Message[Any]]) -> list[tuple[Lane, Sequence[int]]]:
    """Group neighbours of one lane, with their positions."""
    if isinstance(messages, Batch):  # its runs already group the lanes
        return [(run.lane, run.positions) for run in messages.runs]
    return [(lane, _row([one.position for one in some])) for lane, some in groupby(messages, attrgetter("lane"))]


def _uniform_acks(
    runs: Sequence[tuple[Lane, Sequence[int]]], transaction_ids: Callable[[], list[str]], verdict: AckItem
) -> UniformAcks:
    """Return acks with one verdict for messages of one group."""
    lanes: dict[tuple[PartitionId, str | None], tuple[Sequence[int], Sequence[int]]] = {}
    start = 0
    for lane, positions in runs:
        key, indexes = (lane.partition_id, lane.lease), range(start, start + len(positions))
        if key in lanes:  # an unordered lane can have two runs: retried messages and new ones
            lanes[key] = [*lanes[key][0], *indexes], [*lanes[key][1], *positions]
        else:
            lanes[key] = indexes, positions
        start = indexes.stop
    return UniformAcks(
        {key: indexes for key, (indexes, _) in lanes.items()},
        {key: positions for key, (_, positions) in lanes.items()},
        transaction_ids,
        verdict,
    )


def _row(positions: list[int]) -> Sequence[int]:
    """Return the positions as a range if they are consecutive."""
    row = range(positions[0], positions[-1] + 1)
    return row if len(row) == len(positions) and positions == list(row) else positions
