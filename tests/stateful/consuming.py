"""Popping and acking at broker and model: batches, verdicts, and holders of lanes."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, cast

from fairlane.errors import OutcomeUnknown
from fairlane.model.batch import Batch as Handed
from fairlane.model.group import Subscription
from fairlane.model.message import Message as Delivered
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckItem, AckOutcome, AckStatus
from tests.stateful.backends import Backend
from tests.stateful.driver import Driver
from tests.stateful.model import DONE, NEVER, SECOND, Answer, Message, Order, Queue, Taken, Word

BATCHES_KEPT = 6
NOBODY = "nobody"
"""Lease id of a pop whose answer was lost."""


class Batch(NamedTuple):
    """A popped batch, and the incarnation of its queue."""

    queue: str
    group: str
    lease: str | None
    deliveries: Sequence[Delivered[Any]]
    life: int


class Consuming(Driver):
    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.batches: list[Batch] = []
        self.leases: dict[tuple[str, str, str], dict[str, int]] = {}
        """Unreturned leases with their ends, by queue, group and partition."""

    def forget_leases(self, queue: str, group: str | None = None, partition: str | None = None) -> None:
        for key in [key for key in self.leases if key[0] == queue]:
            if group in (None, key[1]) and partition in (None, key[2]):
                del self.leases[key]

    def drop_leases(self, batch: Batch) -> None:
        """Drop the leases of a batch that have ended in the model, after calls that do not report it."""
        lanes = self.models[batch.queue].groups.get(batch.group, {})
        for name, lane in lanes.items():
            if lane.lease is None:
                self.forget_leases(batch.queue, batch.group, name)

    def note_renewal(self, lease: str, ends_at: int) -> None:
        for leases in self.leases.values():
            if leases.get(lease, 0) > self.now:
                leases[lease] = max(leases[lease], ends_at)

    def subscription(self, queue: str, mode: str) -> Subscription:
        """Return the subscription. `time` means the time of the newest message."""
        logs = self.models[queue].partitions.values()
        newest = max((message.created_at for log in logs for message in log), default=self.now)
        return Subscription("time", newest) if mode == "time" else Subscription("new" if mode == "new" else "all")

    def take(
        self,
        queue: str,
        group: str,
        *,
        batch: int,
        lanes: int = 1,
        partition: str | None = None,
        lease_seconds: int | None = None,
        auto_ack: bool = False,
        mode: str = "all",
    ) -> Batch | None:
        """Pop and compare the result with the model. Returns None for an empty batch."""
        subscription = self.subscription(queue, mode)
        call = self.broker.pop(
            queue,
            group=group,
            batch=batch,
            partitions=lanes,
            partition=partition,
            lease_seconds=lease_seconds,
            auto_ack=auto_ack,
            subscription=subscription,
        )
        model = self.models[queue]
        with self.losing("messages", "pop") as lost:
            taken = self.run(self._unless_lost(call))
        if group not in model.groups:
            model.seek(group, subscription.mode, cast("int", subscription.from_at or 0), self.now)
        ends_at = 0 if auto_ack else self.now + (lease_seconds or model.options["lease_seconds"]) * SECOND
        if taken is None:
            seen = [lane.name for lane in lost.answer.lanes[0]]
            order = self._order(queue, group, seen, partition)
            model.pop(group, NOBODY, batch, lanes, ends_at, self.now, order)
            self._given_back(model)
            return None
        return self._compare_pop(queue, group, taken, batch=batch, lanes=lanes, partition=partition, ends_at=ends_at)

    def _compare_pop(
        self,
        queue: str,
        group: str,
        taken: Handed[Any],
        *,
        batch: int,
        lanes: int,
        ends_at: int,
        partition: str | None = None,
    ) -> Batch | None:
        order = self._order(queue, group, [delivery.partition for delivery in taken], partition)
        expected = self.models[queue].pop(group, taken.lease, batch, lanes, ends_at, self.now, order)
        assert [taken_of(delivery) for delivery in taken] == expected
        assert all((d.queue, d.group, d.lease) == (queue, group, taken.lease) for d in taken)
        assert bool(taken.lease) == (bool(expected) and ends_at > 0)
        if not expected:
            return None
        handed = Batch(queue, group, taken.lease or None, tuple(taken), self.lives[queue])
        self.batches = [handed, *self.batches][:BATCHES_KEPT]
        for name in {delivery.partition for delivery in taken if ends_at > 0}:
            self.leases.setdefault((queue, group, name), {})[taken.lease] = ends_at
        return handed

    async def _unless_lost(self, pop: Coroutine[Any, Any, Handed[Any]]) -> Handed[Any] | None:
        try:
            return await pop
        except OutcomeUnknown:
            return None

    def _given_back(self, model: Queue) -> None:
        """Release what a pop with a lost answer had leased, without a charge for any message."""
        self.settle_down()
        for lane in model.held(NOBODY, self.now):
            lane.give_back(self.now)

    def _order(self, queue: str, group: str, seen: Sequence[str], only: str | None) -> Order:
        """Sort lanes by the time since they are ready. The answer decides among equals.

        A lane that gave up its last message is not in the answer, but shows that the pop passed it.
        """
        lanes = self.models[queue].groups[group]
        order = {name: seen.index(name) for name in seen}
        if any(lane.failures or (lane.lease is not None and lane.ends_at <= self.now) for lane in lanes.values()):
            for state in self.run(self.broker.groups.lanes(queue, group)):
                if state.head and state.committed != lanes[state.name].committed:
                    order.setdefault(state.name, -1)
        return lambda ready: sorted(
            (name for name in ready if only in (None, name)),
            key=lambda name: (ready[name], order.get(name, len(seen))),
        )

    def supply(self, queue: str, group: str) -> None:
        """Push messages, so that most pops find some whatever rules a history has."""
        model = self.models[queue]
        lanes = model.groups.get(group, {}).values()
        if not model.partitions or (lanes and all(lane.ready_at == NEVER for lane in lanes)):
            self.push_items([self.item(queue, partition) for partition in ("a", "a", "a", "b", "b")])

    def picked(self, pick: int) -> Batch | None:
        """Return a batch. 0 is one with a live lease, popped now if there is none; others are often stale."""
        live = [b for b in self.batches if b.lease is not None and self.models[b.queue].held(b.lease, self.now)]
        if pick > 0 and self.batches:
            return self.batches[pick % len(self.batches)]
        if live:
            return live[0]
        self.supply("orders", QUEUE_MODE)
        return self.take("orders", QUEUE_MODE, batch=4, lanes=2)

    def word(self, batch: Batch, index: int, status: str, delay_ms: int | None = None) -> Word:
        delivery = batch.deliveries[index]
        error = None if status in DONE else f"it {status}"
        message = delivery.partition, delivery.transaction_id
        return Word(*message, status, batch.lease, error, delay_ms, delivery.position)

    def words(self, batch: Batch, verdicts: Sequence[str | None]) -> list[Word]:
        pairs = zip(range(len(batch.deliveries)), verdicts, strict=False)
        return [self.word(batch, index, status) for index, status in pairs if status is not None]

    def ack_deliveries(self, batch: Batch, count: int, status: AckStatus, delay_ms: int | None) -> None:
        deliveries = batch.deliveries[:count]
        words = [self.word(batch, index, status, delay_ms) for index in range(len(deliveries))]
        for _ in self.calls():
            call = self.broker.ack(deliveries, status, error=words[0].error, delay_ms=delay_ms, check=False)
            self.compare_acks(batch, words, self.run(call), batch.group)

    def ack_words(self, batch: Batch, words: Sequence[Word], group: str | None = None) -> None:
        """Ack by transactionId, unless it names several messages or may have expired."""
        if not words or any(self._doubtful(batch, word) for word in words):
            return
        items = ack_items(batch, words)
        for _ in self.calls():
            outcomes = self.run(self.broker.ack_many(items, group=group or batch.group))
            self.compare_acks(batch, words, outcomes, group or batch.group)

    def ack_and_take(self, batch: Batch, words: Sequence[Word], size: int, lanes: int) -> None:
        """Ack and pop in one call."""
        queue, group, model = batch.queue, batch.group, self.models[batch.queue]
        if any(self._doubtful(batch, word) for word in words):
            return
        for _ in self.calls():
            call = self.broker.ack_and_pop(ack_items(batch, words), queue, group=group, batch=size, partitions=lanes)
            answer = self.run(call)
            assert answer.error is None
            self.compare_acks(batch, words, answer.outcomes, group)
            if group not in model.groups:
                model.seek(group, "all", 0, self.now)
            ends_at = self.now + model.options["lease_seconds"] * SECOND
            self._compare_pop(queue, group, answer.batch, batch=size, lanes=lanes, ends_at=ends_at)

    def _doubtful(self, batch: Batch, word: Word) -> bool:
        model = self.models[batch.queue]
        log = model.partitions.get(word.partition, []) if batch.life == self.lives[batch.queue] else []
        known = [message.created_at for message in log if message.tx == word.tx]
        held = word.lease is not None and bool(model.held(word.lease, self.now))
        old = any(self.now - at >= model.options["dedup_seconds"] * SECOND for at in known)
        return len(known) > 1 or (old and not held)

    def compare_acks(self, batch: Batch, words: Sequence[Word], outcomes: Sequence[AckOutcome], group: str) -> None:
        """Compare the outcome of each ack. For a deleted queue, only check that nothing was done."""
        assert [outcome.transaction_id for outcome in outcomes] == [word.tx for word in words]
        if batch.life != self.lives[batch.queue]:
            assert all(not o.success and o.code in ("lease_lost", "unresolvable") for o in outcomes), outcomes
            return
        answers = self.models[batch.queue].ack(group, words, self.now)
        assert [answer_of(outcome) for outcome in outcomes] == answers
        for word, outcome in zip(words, outcomes, strict=True):
            if outcome.lease_released:
                self.forget_leases(batch.queue, group, word.partition)


def ack_items(batch: Batch, words: Sequence[Word]) -> list[AckItem]:
    ids = {delivery.partition: delivery.partition_id for delivery in batch.deliveries}
    return [
        AckItem(
            transaction_id=word.tx,
            partition=ids[word.partition],
            status=cast(AckStatus, word.status),
            lease=word.lease,
            error=word.error,
            delay_ms=word.delay_ms,
        )
        for word in words
    ]


def answer_of(outcome: AckOutcome) -> Answer:
    assert outcome.success == (outcome.code is None)
    return Answer(outcome.code, outcome.noop, outcome.dead_lettered, outcome.lease_released)


def taken_of(delivery: Delivered[Any]) -> Taken:
    data = bytes(delivery.raw)
    message = Message(delivery.id, delivery.transaction_id, data, delivery.created_at)
    return delivery.partition, delivery.position, message, delivery.failed_attempts
