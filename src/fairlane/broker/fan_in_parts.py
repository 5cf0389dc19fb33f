"""The parts of fan-ins in a transaction: which stored message each of them is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from fairlane.broker.fan_in_watch import FanInWatch
from fairlane.broker.push_batch import PartitionBatch, PushFlight
from fairlane.errors import TransactionRefused
from fairlane.model.fan_in import Callback, FanInStep
from fairlane.model.ids import PartitionId
from fairlane.model.queue import Queue
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, ScheduledSlice, Slice, Stored
from fairlane.store.families.fan_ins import NewFanIn, NewPart
from fairlane.store.families.unique_keys import NewUnique

_Place = tuple[PartitionId, int, str]
"""The partition and position of a message, and its transactionId."""


def fan_in_commit(
    store: Store,
    watch: FanInWatch,
    tenant: str,
    flight: PushFlight,
    push_indexes: Sequence[int],
    fan_ins: Sequence[tuple[FanInStep, Queue]],
) -> Callable[..., Awaitable[tuple[list[AckResult], list[PushResult]]]]:
    """Return the verb of the store that commits a transaction with these fan-ins.

    `push_indexes` has the step of each message in flight.
    """
    steps = [step for step, _ in fan_ins]
    made = [
        NewFanIn(tenant=tenant, id=step.id, group=step.group, total=step.total, callback=Callback.of(step), queue=queue)
        for step, queue in fan_ins
    ]

    async def commit(
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        *scheduled: Sequence[ScheduledSlice],
        unique: Sequence[NewUnique] = (),
    ) -> tuple[list[AckResult], list[PushResult]]:
        # Each batch in flight has one slice, in the same order.
        parts_of = partial(_parts_of, flight, list(flight.batches.values()), push_indexes, steps)
        watch.queues.update(one.queue_id for one in slices)
        results = await store.fan_ins.commit(made, parts_of, acks, slices, *scheduled, unique=unique)
        # These may have ended: they have no parts, or parts that are duplicates of older messages.
        for _, (partition, _, _) in _settled(flight):
            watch.touch(partition)
        watch.made.update(one.id for one in steps if not one.total)
        watch.news.set()
        return results

    return commit


def _parts_of(
    flight: PushFlight,
    batches: Sequence[PartitionBatch],
    push_indexes: Sequence[int],
    steps: Sequence[FanInStep],
    pushed: Sequence[PushResult],
) -> list[list[NewPart]]:
    """Return the parts of each fan-in, given the results of the batches."""
    places = dict(_settled(flight))
    for batch, result in zip(batches, pushed, strict=True):
        assert isinstance(result, Stored), "fan-ins are stored only with all their messages"
        places |= _stored(batch, result.first)
    items = flight.requests[0].items
    for index, step in enumerate(push_indexes):
        if index not in places:
            raise TransactionRefused(
                f"rolled back: step {step}: the message with its unique key is scheduled, so it cannot be a part",
                index=step,
            )
    by_step = {step: (items[index].queue, places[index]) for index, step in enumerate(push_indexes)}
    parts = []
    for fan_in in steps:
        found = [by_step[step] for step in range(fan_in.first, fan_in.first + fan_in.total)]
        parts.append([NewPart(part, at, pos, queue, id) for part, (queue, (at, pos, id)) in enumerate(found)])
    return parts


def _settled(flight: PushFlight) -> Iterator[tuple[int, _Place]]:
    """Yield the messages of the flight that were stored before, by index."""
    outcomes = flight.outcomes[0]
    for index, one in enumerate(outcomes if isinstance(outcomes, list) else ()):
        if one.partition is not None and one.position is not None:
            yield index, (one.partition, one.position, one.transaction_id)


def _stored(batch: PartitionBatch, first: int) -> dict[int, _Place]:
    """Return the messages of a batch that was stored at `first` and behind it, by index. Repeats share a message."""
    found: dict[int, _Place] = {}
    partition = batch.slice.partition
    for position, ((_, index), id) in enumerate(zip(batch.owners, batch.slice.transaction_ids, strict=True), first):
        found[index] = partition, position, id
        for _, again in batch.repeats.get(id, ()):
            found[again] = partition, position, id
    return found
