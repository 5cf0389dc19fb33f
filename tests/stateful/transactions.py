"""Transactions and replays on both sides."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import msgspec

from fairlane.broker.transact import Outcome
from fairlane.errors import InvalidRequest, OutcomeUnknown, QueueFull, TransactionRefused
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckOutcome, AckStatus, PushOutcome
from fairlane.model.segment import ids_of
from fairlane.store.contract.values import DeadFilter, Stored
from tests.stateful.consuming import Batch, Consuming, answer_of
from tests.stateful.driver import answer_to, model_item
from tests.stateful.losses import Lost
from tests.stateful.model import Message, Word


class Transactions(Consuming):
    def transact(self, batch: Batch, words: Sequence[Word], items: Sequence[PushItem]) -> None:
        """Acks and pushes in one transaction: applied or refused as a whole, as the model says."""
        for _ in self.calls():
            outcomes, blamed, known = list[Outcome](), -1, True
            with self.losing("messages", "transact") as lost:
                try:
                    outcomes = self.run(self._transact(batch, words, items))
                except TransactionRefused as error:
                    blamed = error.index
                except InvalidRequest:
                    blamed = [word.status for word in words].index("retry")
                except OutcomeUnknown:
                    known = False
            before = copy.deepcopy(self.models)
            refused = self._apply(batch, words, items, outcomes, lost)
            if known:
                assert (blamed in refused) if refused else (blamed == -1), (blamed, refused)
            if refused or not (known or _was_stored(lost)):
                self.models = before
                continue
            self.drop_leases(batch)
            self.remember(str(outcome.transaction_id) for outcome in outcomes if isinstance(outcome, PushOutcome))

    async def _transact(self, batch: Batch, words: Sequence[Word], items: Sequence[PushItem]) -> list[Outcome]:
        deliveries = {(delivery.partition, delivery.position): delivery for delivery in batch.deliveries}
        async with self.broker.transaction() as transaction:
            for word in words:
                delivery = deliveries[word.partition, word.position or 0]
                transaction.ack(delivery, cast(AckStatus, word.status), error=word.error)
            for item in items:
                data, tx = msgspec.Raw(item.payload), item.transaction_id
                transaction.push(item.queue, data, partition=item.partition, transaction_id=tx)
        return transaction.outcomes

    def _apply(
        self,
        batch: Batch,
        words: Sequence[Word],
        items: Sequence[PushItem],
        outcomes: Sequence[Outcome],
        lost: Lost,
    ) -> list[int]:
        """Return the errors with which the transaction must be refused; none if it must succeed."""
        if words and batch.life != self.lives[batch.queue]:
            return list(range(len(words)))
        answers = self.models[batch.queue].ack(batch.group, words, self.now)
        pushed = [outcome for outcome in outcomes if isinstance(outcome, PushOutcome)]
        ids = [(o.message_id or "", o.transaction_id) for o in pushed] or [_sent_as(item, lost) for item in items]
        expected = dict[int, tuple[str, str, int]]()
        for queue, model in self.models.items():
            mine = [index for index, item in enumerate(items) if item.queue == queue]
            stored = model.push([model_item(items[at]) for at in mine], [ids[at] for at in mine], self.now)
            expected.update(zip(mine, stored, strict=True))
        refused = [at for at, word in enumerate(words) if answers[at].code or word.status == "retry"]
        refused += _behind_a_failure(words)
        refused += [len(words) + at for at, (status, *_) in expected.items() if status == "refused"]
        if answers and all(answer.noop for answer in answers):  # an earlier try was applied, and pushed its own
            refused += [len(words) + at for at, (status, *_) in expected.items() if status == "queued"]
        if outcomes and not refused:
            answered = [answer_of(o) for o in outcomes if isinstance(o, AckOutcome)]
            again = copy.deepcopy(self.models[batch.queue]) if lost.happened else None
            assert answered == answers or (again and answered == again.ack(batch.group, words, self.now))
            assert [answer_to(outcome) for outcome in pushed] == [expected[at] for at in range(len(items))]
        return refused

    def replay(self, queue: str) -> None:
        letters = {letter.id: letter for letter in self.run(self.broker.dead_letters.page(queue, DeadFilter()))}
        waiting = [letter.id for letter in letters.values() if letter.replayed_at is None]
        model = self.models[queue]
        fits = not waiting or not 0 < model.options["max_size"] < model.depth() + len(waiting)
        try:
            made = self.run(self.broker.dead_letters.replay(queue, DeadFilter()))
        except QueueFull:
            assert not fits
            return
        assert fits
        assert sorted(old for old, _ in made) == sorted(waiting)
        assert [letters[old].failed_at for old, _ in made] == sorted(letters[old].failed_at for old in waiting)
        for old, new in made:
            letter = letters[old]
            lane = model.groups[letter.group][letter.partition]
            lane.letters[letter.position] = (*lane.letters[letter.position][:3], True)
            data = lane.log[letter.position].data
            model.append(letter.partition, Message(new, new, data, self.now))


def _sent_as(item: PushItem, lost: Lost) -> tuple[str, str]:
    """Return the id and transactionId of a message in a call whose answer was lost."""
    fragments = [fragment for part in lost.arguments[1] for fragment in part.fragments] if lost.happened else []
    mine = next((one for one in fragments if one.endswith(b":" + bytes(item.payload))), None)
    return ("new", str(item.transaction_id)) if mine is None else ids_of(mine)


def _was_stored(lost: Lost) -> bool:
    """Return the messages that such a call pushes."""
    return lost.happened and all(isinstance(result, Stored) for result in lost.answer[1])


def _behind_a_failure(words: Sequence[Word]) -> list[int]:
    """Return the acks of messages that are delivered again because an earlier one of their partition failed."""
    failed = [(word.partition, word.position or 0) for word in words if word.status == "failed"]
    return [
        at
        for at, word in enumerate(words)
        if any(word.partition == partition and (word.position or 0) > position for partition, position in failed)
    ]
