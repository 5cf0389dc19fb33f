"""Outcomes of the items of a call. Outcomes are values: one bad item never fails the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, Literal, get_args, overload

import msgspec

from fairlane.errors import FairlaneError, InvalidRequest, LeaseLost
from fairlane.model.ids import PartitionId
from fairlane.model.limits import (
    BATCH_ITEMS_MAX,
    COUNT_MAX,
    ERROR_CHARS_MAX,
    RESULT_BYTES_MAX,
    SECONDS_MAX,
    TRACEBACK_BYTES_MAX,
)
from fairlane.model.message import check_json
from fairlane.model.names import check_count, check_name, is_plain, storable, storable_end

PushStatus = Literal["queued", "duplicate", "scheduled", "buffered", "refused"]
AckStatus = Literal["completed", "success", "failed", "retry", "dlq"]
_STATUSES: tuple[str, ...] = get_args(AckStatus)
Isolation = Literal["serializable", "repeatable read", "read committed"]
"""Isolation levels that a transaction may request. It always gets `serializable`, which includes the others."""
_LEVELS: tuple[str, ...] = get_args(Isolation)
OperationReason = Literal["maintaining_order", "lane_locked", "system_busy", "store_unavailable", "maintenance"]
Durability = Literal["store", "journal"]
"""Location of deferred items: the operation queue of the store, or the journal of this broker."""


class Deferral(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Fields of an item that became an operation: where it waits and why. They are unset for other items."""

    operation_id: str | None = None
    queue_position: int | None = None
    """Place among the operations of its partition. 1 is next."""
    reason: OperationReason | None = None
    estimated_wait: float | None = None
    """Estimated seconds until it is applied. None if the drain rate is unknown."""
    durability: Durability | None = None

    def operation_fields(self) -> dict[str, object]:
        """Return the fields of an item that became an operation, by their names on the wire."""
        return {
            "status": "buffered",
            "operationId": self.operation_id,
            "queuePosition": self.queue_position,
            "reason": self.reason,
            "estimatedWait": self.estimated_wait,
            "durability": self.durability,
        }


class PushOutcome(Deferral, gc=False):
    """The outcome of one push.

    If `error` is set, for example because the queue is full, nothing was stored. A `scheduled` item is durable, and
    stored at `deliver_at`. A `buffered` item is durable, and stored soon; `durability` says where it is now, and
    `reason` why.
    """

    status: PushStatus
    transaction_id: str
    message_id: str | None = None
    partition: PartitionId | None = None
    position: int | None = None
    depth: int | None = None
    capacity: int | None = None
    error: FairlaneError | None = None
    deliver_at: int | None = None


class AckItem(msgspec.Struct, kw_only=True, gc=False):
    """A verdict on exactly one message.

    Without a lease it may only finish messages that the last lease of the lane included.
    """

    transaction_id: str
    partition: PartitionId
    status: AckStatus = "completed"
    lease: str | None = None
    error: str | None = None
    traceback: str | None = None
    """Frames of the failed handler, newest last, which are kept with the error. Only the end is kept if it is long."""
    delay_ms: int | None = None
    """With `failed` and `retry`: milliseconds to wait instead of the queue's backoff."""
    result: bytes | None = None
    """JSON that is stored with the acked message and returned to repeated acks."""
    position: int | None = None
    """Position of the message, if the caller knows it. Otherwise its id is looked up."""
    cumulative: bool = False
    """True to also finish all messages of the lease before this one. Queen's clients expect this of single acks."""

    def check(self) -> None:
        """Check the item, and replace characters of its error that no store can hold. Raises InvalidRequest."""
        if not is_plain(self.transaction_id):
            check_name("transactionId", self.transaction_id)
        if type(self.partition) is not PartitionId:
            raise InvalidRequest("an ack names the partition by the id that the pop returned")
        if self.status not in _STATUSES:
            raise InvalidRequest(f"status must be one of {', '.join(_STATUSES)}, not {self.status!r:.40}")
        if self.lease is not None and not isinstance(self.lease, str):
            raise InvalidRequest(f"a lease id is a string, not {type(self.lease).__name__}")
        if self.delay_ms is not None:
            check_count("delay_ms", self.delay_ms, least=0, most=SECONDS_MAX * 1000)
        if self.position is not None:
            check_count("position", self.position, least=0, most=COUNT_MAX)
        if self.result is not None:
            check_json("result", self.result, bytes_max=RESULT_BYTES_MAX)
        if self.error is not None:
            if not isinstance(self.error, str):
                raise InvalidRequest(f"error must be a string, not {type(self.error).__name__}")
            self.error = storable(self.error, chars_max=ERROR_CHARS_MAX)
        if self.traceback is not None:
            if not isinstance(self.traceback, str):
                raise InvalidRequest(f"traceback must be a string, not {type(self.traceback).__name__}")
            self.traceback = storable_end(self.traceback, bytes_max=TRACEBACK_BYTES_MAX)


COMPLETED = AckItem(transaction_id="any", partition=PartitionId(0, 0))
CUMULATIVE = AckItem(transaction_id="any", partition=PartitionId(0, 0), cumulative=True)


class UniformAcks(Sequence[AckItem]):
    """Many acks with the same verdict, kept as columns. An AckItem is built only when it is read.

    `lanes` has the indexes of the messages by partition and lease, `positions` their positions in the lane. Without
    positions, messages are found by their ids. `verdict` is the AckItem they share, except for the message.
    """

    def __init__(
        self,
        lanes: Mapping[tuple[PartitionId, str | None], Sequence[int]],
        positions: Mapping[tuple[PartitionId, str | None], Sequence[int]] | None,
        transaction_ids: Callable[[], list[str]],
        verdict: AckItem = COMPLETED,
    ) -> None:
        self.verdict = verdict
        self.lanes = lanes
        self.size = sum(map(len, lanes.values()))
        self.positions = positions
        self._ids = transaction_ids

    @cached_property
    def transaction_ids(self) -> list[str]:
        return self._ids()

    @cached_property
    def _wheres(self) -> dict[int, dict[str, Any]]:
        """Return the partition, lease and position of each item, by index."""
        return {
            index: {"partition": lane[0], "lease": lane[1], "position": position}
            for lane, indexes in self.lanes.items()
            for index, position in zip(indexes, self.positions_of(lane) or repeat(None), strict=False)
        }

    def positions_of(self, lane: tuple[PartitionId, str | None]) -> Sequence[int]:
        """Return the positions of the messages in a lane; empty if they are not known."""
        return () if self.positions is None else self.positions[lane]

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> AckItem: ...
    @overload
    def __getitem__(self, index: slice) -> list[AckItem]: ...
    def __getitem__(self, index: int | slice) -> AckItem | list[AckItem]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return msgspec.structs.replace(self.verdict, transaction_id=self.transaction_ids[index], **self._wheres[index])


def check_acks(items: Sequence[AckItem]) -> None:
    """Raise InvalidRequest unless these items can be one call. It names the index of the first bad item."""
    if not isinstance(items, Sequence):
        raise InvalidRequest("an ack takes a list of AckItem")
    if len(items) > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"an ack may have {BATCH_ITEMS_MAX} items, not {len(items)}")
    for index, item in enumerate(items):
        if type(item) is not AckItem and not isinstance(item, AckItem):
            raise InvalidRequest(f"item {index} is not an AckItem but {type(item).__name__}")
        try:
            item.check()
        except InvalidRequest as error:
            raise InvalidRequest(f"item {index}: {error}") from None


class AckOutcome(Deferral, gc=False, rename="camel"):
    """The outcome of one ack. `code` and `error` give the reason if `success` is False.

    Codes: `lease_lost`, `unresolvable` (no such message here), `committed` (a nack came too late), `redelivered` (an
    earlier message of the same call failed, so this one is delivered again), `not_delivered` (an ack without a lease of
    a message that was never delivered), `cancelled` (the message was cancelled). An ack that became an operation is
    applied soon. If its lease ends before that, its messages are delivered again.
    """

    success: bool
    transaction_id: str
    noop: bool = False
    """True if the message was finished before."""
    dead_lettered: bool = False
    lease_released: bool = False
    code: str | None = None
    error: str | None = None
    result: bytes | None = None

    def fields(self) -> dict[str, object]:
        """Return the fields of an answer about this outcome, by their names on the wire."""
        fields: dict[str, object] = {
            "success": self.success,
            "error": self.error,
            "leaseReleased": self.lease_released,
            "dlq": self.dead_lettered,
        }
        if self.code is not None:
            fields["code"] = self.code
        if self.noop:
            fields["noop"] = True
        return fields


_NO_OUTCOME = AckOutcome(False, "")


class Outcomes(Sequence[AckOutcome]):
    """Outcomes of acks, one for each item of a call.

    Many items usually share one outcome, so the individual outcomes are built on access.
    """

    def __init__(self, items: Sequence[AckItem]) -> None:
        self._items = items
        self._added: list[tuple[Sequence[int], AckOutcome]] = []
        self._made: list[AckOutcome] | None = None
        self.common: AckOutcome | None = None
        """Outcome that all items share, except for the message id. None if they differ."""

    def add(self, indexes: Sequence[int], outcome: AckOutcome) -> None:
        """Set the outcome of these items, replacing any earlier one."""
        items = self._items
        count = items.size if type(items) is UniformAcks else len(items)
        self.common = outcome if not self._added and len(indexes) == count else None
        self._added.append((indexes, outcome))
        self._made = None

    def by_lane(self) -> Sequence[AckOutcome] | None:
        """Return one outcome for each lane, if all items of each lane share one. None otherwise."""
        items = self._items
        if not isinstance(items, UniformAcks) or len(self._added) != len(items.lanes):
            return None
        found = {id(indexes): outcome for indexes, outcome in self._added}
        outcomes = [found[id(indexes)] for indexes in items.lanes.values() if id(indexes) in found]
        return outcomes if len(outcomes) == len(items.lanes) else None

    def may_have_code(self, code: str) -> bool:
        """Return True if some items may have an outcome with this code. Checks groups of items, not each one."""
        return any(outcome.code == code for _, outcome in self._added)

    def copy(self) -> Outcomes:
        other = Outcomes(self._items)
        other._added, other.common = list(self._added), self.common
        return other

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> AckOutcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[AckOutcome]: ...
    def __getitem__(self, index: int | slice) -> AckOutcome | list[AckOutcome]:
        return self._expand()[index]

    def __iter__(self) -> Iterator[AckOutcome]:
        return iter(self._expand())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._expand() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._expand())

    def _expand(self) -> list[AckOutcome]:
        if self._made is None:
            items = self._items
            ids = items.transaction_ids if isinstance(items, UniformAcks) else [item.transaction_id for item in items]
            found = [self.common or _NO_OUTCOME] * len(ids)
            for indexes, outcome in self._added if self.common is None else ():
                for index in indexes:
                    found[index] = outcome
            replace = msgspec.structs.replace
            self._made = [replace(outcome, transaction_id=id) for outcome, id in zip(found, ids, strict=True)]
        return self._made


def check_leases(outcomes: Sequence[AckOutcome]) -> Sequence[AckOutcome]:
    """Return outcomes of acks. Raises LeaseLost if some came after their lease had ended."""
    if isinstance(outcomes, Outcomes) and not outcomes.may_have_code("lease_lost"):
        return outcomes
    lost = sum([outcome.code == "lease_lost" for outcome in outcomes])
    if lost:
        raise LeaseLost(
            f"the lease of {lost} of {len(outcomes)} messages ended before the ack, so they are delivered again; "
            "pop with a longer lease, renew it in time, or pass check=False to get an outcome for each message"
        )
    return outcomes


class RenewOutcome(msgspec.Struct, frozen=True):
    """The outcome of a renewal.

    `renewed` partitions are held at least until `expires_at`; 0 and None if the lease had ended.
    """

    renewed: int
    expires_at: int | None
    cancelled: list[tuple[PartitionId, int]] = []
    """Messages of the lease that were cancelled, by partition and position. The lease does not hold them anymore."""


def check_isolation(level: object) -> None:
    """Raise InvalidRequest unless `level` is an isolation level that a transaction may ask for."""
    if level not in _LEVELS:
        raise InvalidRequest(f"isolation must be one of {', '.join(_LEVELS)}, not {level!r:.40}")
