"""Pending writes of a claimed backlog: prepares what the store applies, and handles the results."""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import msgspec

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.ack_plan import LOST, Plan
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.push import Announcer
from fairlane.errors import FairlaneError
from fairlane.model.ids import id_key
from fairlane.model.operation import AckPayload, Operation, PushColumns, ack_result, read_ack, read_push
from fairlane.model.outcome import AckItem, AckOutcome, Outcomes
from fairlane.model.queue import Queue, QueueOptions
from fairlane.model.segment import encode
from fairlane.store.contract.operations import Application, ApplyResult, ClaimedBacklog
from fairlane.store.contract.values import NO_ID_TIME, AckResult, Duplicate, Duplicates, Gone, Slice, Stored

_SLACK_SECONDS = 60


class PendingWrites(Protocol):
    """The pushes or acks of a claimed backlog that are applied together. Results of the store change them."""

    backlog: ClaimedBacklog
    sequences: list[int]

    async def prepare(self) -> Application | str:
        """Return what to apply now, or the reason why it can never be applied."""
        ...

    def on_result(self, result: ApplyResult) -> bool:
        """Take in the result of the store. Returns True if the rest is to be prepared and applied again."""
        ...

    def shrink_to_first(self) -> bool:
        """Keep only the first operation, and leave the others for later. Returns False if there were no others."""
        ...


class PendingPushes:
    """The pushes at the front of a backlog, stored together.

    A run ends before a repeated transactionId: it is a duplicate only if the first one is stored.
    """

    def __init__(self, backlog: ClaimedBacklog, catalogue: Catalogue, announcer: Announcer, now_ms: int) -> None:
        self.backlog = backlog
        self._now_ms = now_ms
        self._catalogue = catalogue
        self._announcer = announcer
        self._messages: list[_PendingMessage] = []
        self._broken: str | None = None
        self.sequences: list[int] = []
        self._take()

    def _take(self) -> None:
        keys: dict[int, str] = {}
        for operation in self.backlog.operations:
            try:
                columns = read_push(operation.payload)
            except (FairlaneError, ValueError) as error:
                if not self.sequences:
                    self.sequences, self._broken = [operation.sequence], f"its payload cannot be read: {error}"
                return
            if self.sequences and _meets(keys, columns):
                return
            for index in range(len(columns.fragments)):
                self._messages.append(_PendingMessage(operation, columns, index, keys))
            self.sequences.append(operation.sequence)

    async def prepare(self) -> Application | str:
        if self._broken is not None:
            return self._broken
        first = self.backlog.operations[0]
        queue = await self._catalogue.queue(first.tenant, first.queue, make=False)
        if queue is None or queue.id != self.backlog.queue_id:
            return f"queue {first.queue!r} was deleted"
        left = [message for message in self._messages if message.duplicate_of is None]
        taken = [one for one in self.backlog.operations if one.sequence in set(self.sequences)]
        return Application(
            self.backlog.claim,
            self.sequences,
            sum(one.messages for one in taken),
            self._results,
            slice=self._slice(queue, left) if left else None,
        )

    def _slice(self, queue: Queue, left: list[_PendingMessage]) -> Slice:
        return Slice(
            self.backlog.claim.partition,
            queue.id,
            self._options(queue),
            [message.fragment for message in left],
            [message.transaction_id for message in left],
            [message.key for message in left],
            [message.id_time for message in left],
            [message.given for message in left],
        )

    def _options(self, queue: Queue) -> QueueOptions:
        """Return the options of the queue, with a deduplication window that includes the time of acceptance."""
        age_seconds = (self._now_ms - self.backlog.operations[0].created_at // 1000) // 1000 + _SLACK_SECONDS
        if 0 < queue.options.dedup_seconds < age_seconds:
            return msgspec.structs.replace(queue.options, dedup_seconds=age_seconds)
        return queue.options

    def shrink_to_first(self) -> bool:
        others = len(self.sequences) > 1
        self.sequences = self.sequences[:1]
        self._messages = [message for message in self._messages if message.sequence == self.sequences[0]]
        return others

    def on_result(self, result: ApplyResult) -> bool:
        if isinstance(result, Stored):
            stored = sum(message.duplicate_of is None for message in self._messages)
            self._announcer.appended(self.backlog.queue_id, stored)
        elif isinstance(result, Duplicates):
            left = [message for message in self._messages if message.duplicate_of is None]
            for found in result.found:
                left[found.index].on_duplicate(found)
            return True
        elif isinstance(result, Gone):
            self._catalogue.forget(self.backlog.queue_id)
            return True
        return False

    def _results(self, result: Stored | AckResult | None) -> list[bytes]:
        """Return the outcome of each message, by operation."""
        position = result.first if isinstance(result, Stored) else 0
        items: dict[int, list[dict[str, object]]] = {sequence: [] for sequence in self.sequences}
        for message in self._messages:
            items[message.sequence].append(message.outcome(position))
            position += message.duplicate_of is None
        return [encode({"items": items[sequence]}) for sequence in self.sequences]


class _PendingMessage:
    __slots__ = ("duplicate_of", "fragment", "given", "id_time", "key", "message_id", "sequence", "transaction_id")

    def __init__(self, operation: Operation, columns: PushColumns, index: int, keys: dict[int, str]) -> None:
        self.sequence = operation.sequence
        self.fragment = columns.fragments[index]
        self.message_id = columns.message_ids[index]
        self.transaction_id = columns.transaction_ids[index]
        self.key = columns.keys[index]
        id_time = columns.id_times[index]
        self.id_time = NO_ID_TIME if id_time is None else id_time
        self.given = columns.given[index]
        self.duplicate_of: Duplicate | None = None
        if keys.setdefault(self.key, self.transaction_id) != self.transaction_id:
            self._next_key()  # another text has the same key

    def _next_key(self) -> None:
        self.key = id_key(self.transaction_id, salt=1)

    def on_duplicate(self, found: Duplicate) -> None:
        if found.transaction_id == self.transaction_id:
            self.duplicate_of = found
        elif self.duplicate_of is None:
            self._next_key()

    def outcome(self, position: int) -> dict[str, object]:
        stored = self.duplicate_of
        mine = stored is None or stored.message_id == self.message_id
        return {
            "transaction_id": self.transaction_id,
            "status": "queued" if mine else "duplicate",
            "message_id": self.message_id if stored is None else stored.message_id,
            "position": position if stored is None else stored.position,
        }


def _meets(keys: dict[int, str], columns: PushColumns) -> bool:
    given = (key for key, maybe in zip(columns.keys, columns.given, strict=True) if maybe)
    return any(key in keys for key in given)


class PendingAcks:
    """The acks at the front of a backlog.

    Acks that only finish messages of one lease, each once, are applied together. Any other ack is applied alone. The
    results report a lease that has ended.
    """

    def __init__(self, backlog: ClaimedBacklog, acker: Acker) -> None:
        self.backlog = backlog
        self._acker = acker
        self._payloads: list[AckPayload] = []
        self._broken: str | None = None
        self.sequences: list[int] = []
        self._items: list[AckItem] = []
        self._outcomes = Outcomes([])
        self._plan: Plan | None = None
        self._planned = False
        self._run: tuple[list[int], list[AckPayload]] | None = None
        """Sequences and payloads of a combined ack whose lease had ended. None if there is no such ack."""
        self._take()

    def _take(self) -> None:
        lease: str | None = None
        named: set[str] = set()
        for operation in self.backlog.operations:
            try:
                payload = read_ack(operation.payload)
            except msgspec.DecodeError as error:
                if not self.sequences:
                    self.sequences, self._broken = [operation.sequence], f"its payload cannot be read: {error}"
                return
            if not self.sequences:
                lease = _finished_lease(payload)
            elif lease is None or _finished_lease(payload) != lease or not named.isdisjoint(_ids(payload)):
                return
            named.update(_ids(payload))
            self.sequences.append(operation.sequence)
            self._payloads.append(payload)

    async def prepare(self) -> Application | str:
        if self._broken is not None:
            return self._broken
        if not self._planned:
            self._items = [item for payload in self._payloads for item in payload.items]
            self._outcomes = Outcomes(self._items)
            request = AckRequest(self.backlog.operations[0].tenant, self._payloads[0].group, self._items)
            plans = await self._acker.plan(request, self._outcomes)
            self._plan = plans[0] if plans else None
            self._planned = True
        ack = self._plan.ack if self._plan else None
        return Application(self.backlog.claim, self.sequences, 0, self._results, ack=ack)

    def shrink_to_first(self) -> bool:
        others = len(self.sequences) > 1
        self.sequences, self._payloads = self.sequences[:1], self._payloads[:1]
        self._planned = self._planned and not others
        return others

    @property
    def lost(self) -> list[AckOutcome]:
        """Return the acks without effect, usually because their lease had ended."""
        return [outcome for outcome in self._outcomes if not outcome.success and outcome.code != "redelivered"]

    def on_result(self, result: ApplyResult) -> bool:
        plan = self._plan
        if not isinstance(result, AckResult) or plan is None:
            return False
        ended = result.state != "ok" and not result.repeated
        if ended and len(self.sequences) > 1:
            # The first may have been applied before. Then it only repeats its lease.
            self._run = self.sequences, self._payloads
            return self.shrink_to_first()
        self._acker.answer(plan, result, self._outcomes)
        # The rest is applied next. Without a rest, the operation ends.
        self._plan = self._acker.resolve(plan, result, self._items, self._outcomes)
        if ended and self._run is not None:
            self.sequences, self._payloads = self._run
            self._items = [item for payload in self._payloads for item in payload.items]
            self._outcomes = Outcomes(self._items)
            self._outcomes.add(range(len(self._items)), LOST)
        return True

    def _results(self, result: Stored | AckResult | None) -> list[bytes]:
        outcomes = self._outcomes.copy()
        if isinstance(result, AckResult) and self._plan is not None:
            self._acker.resolve(self._plan, result, self._items, outcomes)
        left = iter(outcomes)
        return [ack_result(islice(left, len(payload.items))) for payload in self._payloads]


def _ids(payload: AckPayload) -> list[str]:
    return [item.transaction_id for item in payload.items]


def _finished_lease(payload: AckPayload) -> str | None:
    """Return the lease of acks that finish messages of one lease and do nothing else, otherwise None."""
    lease = payload.items[0].lease if payload.items else None
    alike = all(item.lease == lease and item.status in ("completed", "success") for item in payload.items)
    return lease if alike else None
