"""Transactions and replays on both sides."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import msgspec

from fairlane.engine.transact import Outcome
from fairlane.errors import InvalidRequest, QueueFull, TransactionRefused
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckOutcome, AckStatus, PushOutcome
from fairlane.store.values import DeadFilter
from tests.stateful.consuming import Batch, Consuming, answer_of
from tests.stateful.driver import as_told, model_item
from tests.stateful.model import Message, Word


class Bundles(Consuming):
    def transact(self, batch: Batch, words: Sequence[Word], items: Sequence[PushItem]) -> None:
        """Acks and pushes in one transaction: applied or refused as a whole, as the model says."""
        outcomes, blamed = list[Outcome](), -1
        try:
            outcomes = self.run(self._bundle(batch, words, items))
        except TransactionRefused as error:
            blamed = error.index
        except InvalidRequest:
            blamed = [word.status for word in words].index("retry")
        before = copy.deepcopy(self.models)
        refused = self._apply(batch, words, items, outcomes)
        assert (blamed in refused) if refused else (blamed == -1), (blamed, refused)
        if refused:
            self.models = before
            return
        self.drop_leases(batch)
        self.remember(str(item.transaction_id) for item in items)

    async def _bundle(self, batch: Batch, words: Sequence[Word], items: Sequence[PushItem]) -> list[Outcome]:
        deliveries = {(delivery.partition, delivery.position): delivery for delivery in batch.deliveries}
        async with self.broker.transaction() as bundle:
            for word in words:
                delivery = deliveries[word.partition, word.position or 0]
                bundle.ack(delivery, cast(AckStatus, word.status), error=word.error)
            for item in items:
                data, tx = msgspec.Raw(item.payload), item.transaction_id
                bundle.push(item.queue, data, partition=item.partition, transaction_id=tx)
        return bundle.outcomes

    def _apply(
        self, batch: Batch, words: Sequence[Word], items: Sequence[PushItem], outcomes: Sequence[Outcome]
    ) -> list[int]:
        """The steps for which it must be refused; none if it is to be as the outcomes say."""
        if words and batch.life != self.lives[batch.queue]:
            return list(range(len(words)))
        answers = self.models[batch.queue].ack(batch.group, words, self.now, bundle=True)
        pushed = [outcome for outcome in outcomes if isinstance(outcome, PushOutcome)]
        ids = [(o.message_id or "", o.transaction_id) for o in pushed] or [
            ("new", str(i.transaction_id)) for i in items
        ]
        expected = dict[int, tuple[str, str, int]]()
        for queue, model in self.models.items():
            mine = [index for index, item in enumerate(items) if item.queue == queue]
            stored = model.push([model_item(items[at]) for at in mine], [ids[at] for at in mine], self.now)
            expected.update(zip(mine, stored, strict=True))
        refused = [at for at, word in enumerate(words) if answers[at].code or word.status == "retry"]
        refused += [len(words) + at for at, (status, *_) in expected.items() if status == "refused"]
        if answers and all(answer.noop for answer in answers):  # an earlier try was applied, and pushed its own
            refused += [len(words) + at for at, (status, *_) in expected.items() if status == "queued"]
        if not refused:
            assert [answer_of(o) for o in outcomes if isinstance(o, AckOutcome)] == answers
            assert [as_told(outcome) for outcome in pushed] == [expected[at] for at in range(len(items))]
        return refused

    def replay(self, queue: str) -> None:
        letters = {letter.id: letter for letter in self.run(self.broker.dead_letters(queue, DeadFilter()))}
        waiting = [letter.id for letter in letters.values() if letter.replayed_at is None]
        model = self.models[queue]
        fits = not waiting or not 0 < model.options["max_size"] < model.depth() + len(waiting)
        try:
            made = self.run(self.broker.replay(queue, DeadFilter()))
        except QueueFull:
            assert not fits
            return
        assert fits
        assert sorted(old for old, _ in made) == sorted(waiting)
        assert [letters[old].failed_at for old, _ in made] == sorted(letters[old].failed_at for old in waiting)
        for old, new in made:
            letter = letters[old]
            lane = model.groups[letter.group][letter.partition_name]
            lane.letters[letter.position] = (*lane.letters[letter.position][:3], True)
            data = lane.log[letter.position].data
            model.append(letter.partition_name, Message(new, new, data, self.now))
