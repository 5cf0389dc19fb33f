"""Unique messages in flight: answers the ones that another message excludes, and lists the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from fairlane.broker.push_batch import PartitionBatch, PushFlight
from fairlane.errors import InvalidRequest
from fairlane.model.outcome import PushOutcome
from fairlane.model.unique import Unique, unique_hash
from fairlane.store.contract.store import Store
from fairlane.store.families.unique_keys import Holder, NewUnique, UniqueKey


class _Pushed(NamedTuple):
    """A unique message: its flight, its batch, and its index in it, `at`."""

    flight: PushFlight
    batch: PartitionBatch
    at: int
    unique: Unique
    key: UniqueKey

    @property
    def transaction_id(self) -> str:
        return self.batch.slice.transaction_ids[self.at]


class UniqueFlight:
    """The unique messages of flights whose batches are packed."""

    def __init__(self, store: Store, flights: Sequence[PushFlight]) -> None:
        self._store = store
        self._flights = flights
        items = (item for flight in flights for request in flight.requests for item in request.items)
        self._any = any(item.unique is not None for item in items)
        self._checked = False

    async def settle(self) -> list[NewUnique]:
        """Answer messages that another one excludes, and remove them from their batches. Returns the others."""
        if not self._any:
            return []
        if not self._checked:
            await self._check()
            self._settle_repeats()
            self._checked = True
        found = list(self._messages())
        holders = await self._store.unique_keys.holders([one.key for one in found]) if found else {}
        for one in reversed(found):  # from the end, so that the indexes of the others stay valid
            holder = holders.get(one.key)
            if holder is not None and holder.excludes(one.unique):
                _answer(one, holder)
        return [
            NewUnique(
                one.key,
                one.unique,
                one.batch.slice.partition,
                one.transaction_id,
                one.batch.message_ids[one.at],
            )
            for one in self._messages()
        ]

    def _messages(self) -> Iterator[_Pushed]:
        for flight in self._flights:
            for batch in flight.batches.values():
                for index, (request, number) in enumerate(batch.owners):
                    item = flight.requests[request].items[number]
                    if item.unique is not None:
                        key = UniqueKey(
                            batch.slice.queue_id, unique_hash(item.unique_key, item.type, bytes(item.payload))
                        )
                        yield _Pushed(flight, batch, index, item.unique, key)

    async def _check(self) -> None:
        for flight in self._flights:
            for batch in flight.batches.values():
                items = [flight.requests[request].items[number] for request, number in batch.owners]
                if any(item.unique is not None and item.unique_key is None for item in items):
                    await self._check_clear(batch)

    async def _check_clear(self, batch: PartitionBatch) -> None:
        """Raise InvalidRequest if the hash of a payload that is stored sealed would be stored in clear."""
        part = batch.slice
        if await self._store.codec.seals(part.queue_id, part.options):
            queue = batch.partition[1]
            raise InvalidRequest(
                f"queue {queue!r:.80} is encrypted, and the hash of the payload would be stored in clear; give a "
                "uniqueKey that may be known"
            )

    def _settle_repeats(self) -> None:
        """Make later messages with a key of this call share the outcome of the first."""
        first: dict[UniqueKey, _Pushed] = {}
        repeats: list[_Pushed] = []
        for one in sorted(self._messages(), key=lambda one: one.batch.owners[one.at]):
            before = first.setdefault(one.key, one)
            if before is one:
                continue
            if before.flight is not one.flight:
                raise InvalidRequest("two messages of one call have the same unique key, and only one is scheduled")
            repeats.append(one)
        again: dict[UniqueKey, list[tuple[int, int]]] = {}
        for one in repeats:
            owners = [one.batch.owners[one.at], *one.batch.repeats.pop(one.transaction_id, ())]
            again.setdefault(one.key, []).extend(owners)
        ids = {key: (one.batch, one.transaction_id) for key, one in first.items()}
        for one in sorted(repeats, key=lambda one: one.at, reverse=True):
            one.batch.drop(one.at)
        for key, owners in again.items():
            batch, transaction_id = ids[key]
            batch.repeats[transaction_id] = [*batch.repeats.get(transaction_id, ()), *owners]


def _answer(one: _Pushed, holder: Holder) -> None:
    scheduled = holder.position is None
    outcome = PushOutcome(
        "duplicate",
        holder.transaction_id,
        holder.message_id,
        holder.partition,
        holder.position,
        deliver_at=holder.due_at if scheduled else None,
    )
    again = one.batch.repeats.pop(one.transaction_id, ())
    mine = holder.message_id == one.batch.message_ids[one.at]
    owner = one.batch.drop(one.at)
    for other in again:
        one.flight.put(other, outcome)
    if mine:  # stored by an earlier attempt of this call, whose answer was lost
        outcome = msgspec.structs.replace(outcome, status="scheduled" if scheduled else "queued")
    one.flight.put(owner, outcome)
