"""Appending what is due: which messages become which slices, and what to do with those that a push refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from fairlane.model.ids import PartitionId, id_key
from fairlane.model.queue import QueueOptions
from fairlane.store.values import Duplicates, Full, Locked, OperationsAhead, PushResult, Slice, Stored

ROUNDS_MAX = 100
"""Each round settles some of the slices; the queue of those that are left kept changing."""


class Due(msgspec.Struct):
    """A message that is due; it is the one at `index` of its bundle."""

    due_at: int
    message_id: str
    bundle: object
    index: int
    partition_id: int
    queue_id: int
    partition_name: str
    key: int
    id_ms: int
    given: bool
    transaction_id: str
    message: bytes


class Firing:
    """Due messages on their way into the log, in the order they are due."""

    def __init__(self, shard: int, rows: Sequence[Due]) -> None:
        self._shard = shard
        self.left: dict[int, list[Due]] = defaultdict(list)
        """By partition."""
        for row in rows:
            self.left[row.partition_id].append(row)
        self.done: list[Due] = []
        """Appended, known already, or without a queue."""
        self.later: list[Due] = []
        """Their queue is full, their partition locked, or operations of it wait before them."""
        self.fired: dict[int, int] = defaultdict(int)
        """How many were appended, by queue."""

    def slices(self, options: Mapping[int, QueueOptions]) -> list[Slice]:
        """What is left, by partition; what has no queue any more is done."""
        for partition_id, rows in list(self.left.items()):
            if rows[0].queue_id not in options:
                self.done += self.left.pop(partition_id)
        return [
            Slice(
                partition=PartitionId(self._shard, partition_id),
                queue_id=rows[0].queue_id,
                options=options[rows[0].queue_id],
                fragments=[row.message for row in rows],
                transaction_ids=[row.transaction_id for row in rows],
                keys=[row.key for row in rows],
                id_times=[row.id_ms for row in rows],
                given=[bool(row.given) for row in rows],
            )
            for partition_id, rows in sorted(self.left.items())
        ]

    def apply(self, slices: Sequence[Slice], results: Sequence[PushResult]) -> list[tuple[int, str]]:
        """Settle what the push decided; (queue, partition name) of those whose partition is gone."""
        gone: list[tuple[int, str]] = []
        full: dict[int, tuple[Full, list[int]]] = {}
        for part, result in zip(slices, results, strict=True):
            id = part.partition.id
            if isinstance(result, Stored):
                self.fired[part.queue_id] += len(part.fragments)
                self.done += self.left.pop(id)
            elif isinstance(result, Duplicates):
                self._known(id, result)
            elif isinstance(result, Full):
                full.setdefault(part.queue_id, (result, []))[1].append(id)
            elif isinstance(result, OperationsAhead | Locked):
                self.later += self.left.pop(id)
            else:
                gone.append((part.queue_id, self.left[id][0].partition_name))
        for refusal, ids in full.values():
            self._make_room(refusal, ids)
        return gone

    def move(self, name: str, queue_id: int, partition_id: int) -> None:
        """A partition that was made anew has another id."""
        for id, rows in list(self.left.items()):
            if id != partition_id and (rows[0].queue_id, rows[0].partition_name) == (queue_id, name):
                self.left[partition_id] += self.left.pop(id)

    def _known(self, partition_id: int, result: Duplicates) -> None:
        rows = self.left.pop(partition_id)
        same = {one.index for one in result.found if one.transaction_id == rows[one.index].transaction_id}
        for one in result.found:
            if one.index not in same:
                rows[one.index].key = id_key(rows[one.index].transaction_id, salt=1)
        self.done += [rows[index] for index in same]
        if left := [row for index, row in enumerate(rows) if index not in same]:
            self.left[partition_id] = left

    def _make_room(self, refusal: Full, ids: list[int]) -> None:
        """The first of a full queue's messages that fit go on, the others wait."""
        rows = sorted((row for id in ids for row in self.left.pop(id)), key=lambda row: (row.due_at, row.message_id))
        room = max(0, refusal.capacity - refusal.depth)
        self.later += rows[room:]
        for row in rows[:room]:
            self.left[row.partition_id].append(row)
