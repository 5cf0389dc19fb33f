"""A broker and its model side by side, with one clock, the same steps, and every answer compared."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from fairlane.broker.broker import Broker
from fairlane.errors import QueueFull
from fairlane.model.message import PushItem
from fairlane.model.outcome import PushOutcome
from tests.stateful.backends import Backend
from tests.stateful.losses import Losing
from tests.stateful.model import Item, Queue

T = TypeVar("T")

Choice = tuple[str, str, str | tuple[str, int] | None]
"""A message to push: queue, partition, and how its transactionId is chosen."""

Pushed = tuple[PushItem, PushOutcome]

IDS_KEPT = 10


class Driver(Losing):
    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.clock = backend.broker_loop.clock
        self.pushed = 0
        self.ids: list[str] = []
        self.models: dict[str, Queue] = {}
        self.lives: dict[str, int] = {}

    @property
    def broker(self) -> Broker:
        return self.backend.broker_loop.broker

    @property
    def now(self) -> int:
        return self.clock.at

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.backend.broker_loop.run(call)

    def teardown(self) -> None:
        self.backend.leave()

    def make(self, queue: str, options: dict[str, int]) -> None:
        """Create a new queue with these options, and delete one with the same name."""
        self.configure(queue, options)
        self.models[queue] = Queue(dict(options))
        self.lives[queue] = self.lives.get(queue, 0) + 1

    def configure(self, queue: str, options: dict[str, Any]) -> None:
        self.run(self.broker.queues.configure(queue, **options))

    def items(self, chosen: Sequence[Choice]) -> list[PushItem]:
        return [self._item(*choice) for choice in chosen]

    def _item(self, queue: str, partition: str, choice: str | tuple[str, int] | None) -> PushItem:
        tx = choice if isinstance(choice, str) else None
        if isinstance(choice, tuple) and choice[0] == "again":
            tx = self.ids[choice[1] % len(self.ids)] if self.ids else "x"
        elif isinstance(choice, tuple):
            tx = str(UUID(int=(self.now // 1000 + choice[1]) << 80 | 0x7 << 76 | 0x8 << 60 | self.pushed))
        return self.item(queue, partition, tx)

    def item(self, queue: str, partition: str, tx: str | None = None) -> PushItem:
        self.pushed += 1
        return PushItem(queue=queue, partition=partition, transaction_id=tx, payload=b'{"n":%d}' % self.pushed)

    def push_items(self, items: Sequence[PushItem]) -> None:
        """Push items. Repeats are left out where the broker cannot recognize them."""
        for _ in self.calls():
            if not all(self.models[item.queue].options["dedup_seconds"] for item in items):
                self.compare_pushes(items, self.run(self.broker.push_many(items)))
                continue
            with self.losing("messages", "push") as lost:
                outcomes = self.run(self.broker.push_many(items))
            self.compare_pushes(items, outcomes, repeated=lost.happened)

    def compare_pushes(
        self, items: Sequence[PushItem], outcomes: Sequence[PushOutcome], *, repeated: bool = False
    ) -> None:
        """Compare outcomes with the model.

        With `repeated`, the broker repeated the push and does not know the depth.
        """
        for queue, model in self.models.items():
            mine = [(item, o) for item, o in zip(items, outcomes, strict=True) if item.queue == queue]
            before = model.depth()
            for unit in self._units(mine):
                ids = [(outcome.message_id or "", outcome.transaction_id) for _, outcome in unit]
                answers = model.push([model_item(item) for item, _ in unit], ids, self.now)
                assert [answer_to(outcome) for _, outcome in unit] == answers
            for item, outcome in mine:
                assert item.transaction_id in (None, outcome.transaction_id)
                if not repeated:
                    self._compare_room(outcome, before, model.depth(), model.options["max_size"])
        self.remember(outcome.transaction_id for outcome in outcomes)

    def _units(self, mine: list[Pushed]) -> list[list[Pushed]]:
        """Yield what was stored, then the refused partitions, none of which may fit after it."""
        refused = dict.fromkeys(item.partition for item, outcome in mine if outcome.status == "refused")
        stored = [(item, outcome) for item, outcome in mine if item.partition not in refused]
        return [stored, *([pair for pair in mine if pair[0].partition == name] for name in refused)]

    def _compare_room(self, outcome: PushOutcome, before: int, after: int, limit: int) -> None:
        """Compare the depth at the time of each item. It is exact if the call touched one lane."""
        if outcome.status == "queued":
            assert (outcome.capacity or 0) == limit
            assert outcome.depth in range(before + 1, after + 1) if limit else outcome.depth is None
        if outcome.status == "refused":
            assert isinstance(outcome.error, QueueFull)
            assert outcome.error.capacity == limit
            assert outcome.error.depth in range(before, after + 1)

    def remember(self, ids: Iterable[str]) -> None:
        """Remember an item, to push it again later."""
        self.ids = [*dict.fromkeys(ids), *self.ids][:IDS_KEPT]


def model_item(item: PushItem) -> Item:
    return item.partition, item.transaction_id, item.payload


def answer_to(outcome: PushOutcome) -> tuple[str, str, int]:
    return outcome.status, outcome.message_id or "", -1 if outcome.position is None else outcome.position
