"""The batchers of the broker: one for each kind of work that travels together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fairlane.broker.ack import AckRequest
from fairlane.broker.deferral.route import Route
from fairlane.broker.push_batch import PushRequest
from fairlane.broker.scheduled import ScheduledMessages
from fairlane.errors import LaneLocked
from fairlane.model.outcome import AckOutcome, PushOutcome, RenewOutcome
from fairlane.runtime.batcher import Batcher, BatchPolicy, Weight
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Renewal

Pushes = Batcher[PushRequest, list[PushOutcome]]
Acks = Batcher[AckRequest, Sequence[AckOutcome]]


class Batchers:
    """The batchers of the broker: `push_operations` and `ack_operations` make operations, to be applied later."""

    def __init__(self, store: Store, route: Route, scheduled: ScheduledMessages) -> None:
        wide = BatchPolicy(flushes=store.flushes())
        self.pushes: Pushes = Batcher(route.push, wide, weigh=_weigh_push)
        self.scheduled: Pushes = Batcher(scheduled.flush, wide, weigh=_weigh_push)
        self.acks: Acks = Batcher(route.ack, wide, weigh=_weigh_ack)
        self.renewals: Batcher[Renewal, RenewOutcome] = Batcher(_renewing(store), BatchPolicy())
        self.push_operations: Pushes = Batcher(route.enqueue, BatchPolicy(), weigh=_weigh_push)
        self.ack_operations: Acks = Batcher(route.enqueue_acks, BatchPolicy(), weigh=_weigh_ack)

    @property
    def pending(self) -> int:
        """Requests handed over and not answered yet."""
        return sum(batcher.pending for batcher in (self.pushes, self.acks, self.renewals))

    async def stop_pushes(self) -> None:
        await self.pushes.stop()
        await self.scheduled.stop()

    async def stop(self) -> None:
        """The rest, when nobody pops any more."""
        await self.acks.stop()
        await self.renewals.stop()
        await self.push_operations.stop()
        await self.ack_operations.stop()


def _renewing(store: Store) -> Callable[[list[Renewal]], Awaitable[Sequence[RenewOutcome | Exception]]]:
    async def renew(renewals: list[Renewal]) -> Sequence[RenewOutcome | Exception]:
        """Together; where a lane is locked each by itself, so that none waits for another's."""
        try:
            return await store.messages.renew(renewals)
        except LaneLocked as error:
            if len(renewals) == 1:
                return [error]
        alone = await asyncio.gather(*(renew([one]) for one in renewals))
        return [outcome for outcomes in alone for outcome in outcomes]

    return renew


def _weigh_push(request: PushRequest) -> Weight:
    if len(request.items) == 1:
        return Weight(1, len(request.items[0].payload))
    return Weight(len(request.items), sum(map(len, [item.payload for item in request.items])))


def _weigh_ack(request: AckRequest) -> Weight:
    return Weight(len(request.items))
