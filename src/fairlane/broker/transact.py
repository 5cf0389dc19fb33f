"""Transactions: acks and pushes over any queues, all or nothing. Never merged with others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.ack_plan import Plan, outcome_of
from fairlane.broker.capacity import full
from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import Draft, Flush, PushRequest, doubt
from fairlane.broker.unknown import UNKNOWN_PAUSES, still_unknown
from fairlane.errors import (
    AlreadyApplied,
    FairlaneError,
    InvalidRequest,
    LaneWaiting,
    OutcomeUnknown,
    StoreUnavailable,
    TransactionRefused,
)
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckItem, AckOutcome, Outcomes, PushOutcome
from fairlane.store.contract.acks import only_repeats
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import (
    AckResult,
    Full,
    LaneAck,
    Nack,
    OperationsAhead,
    PushResult,
    Slice,
    Stored,
)

_ROUNDS_MAX = 100


class AckStep(msgspec.Struct):
    """An ack inside a transaction. `failed` and `dlq` dead-letter at once; `retry` has no place there."""

    item: AckItem
    group: str


Commit = Callable[[Sequence[LaneAck], Sequence[Slice]], Awaitable[tuple[list[AckResult], list[PushResult]]]]
Step = PushItem | AckStep
Outcome = PushOutcome | AckOutcome


class Transactor:
    def __init__(self, store: Store, pusher: Pusher, acker: Acker) -> None:
        self._store = store
        self._pusher = pusher
        self._acker = acker

    async def transact(
        self,
        tenant: str,
        steps: Sequence[Step],
        *,
        commit: Commit | None = None,
        release: bool = False,
    ) -> list[Outcome]:
        """One outcome per step, in order. TransactionRefused, and nothing applied, if a step is refused.

        A push whose transactionId is known is a repeat of this transaction, or of a part of it, and counts as done; one
        that is not known is refused (AlreadyApplied) if all the acks are repeats.
        `commit` is the store's verb, if it is not the plain one; with `release` what the acks leave of their leases
        is given back.
        """
        acks, ack_indexes = self._acks(tenant, steps)
        ack_outcomes = {group: Outcomes(request.items) for group, request in acks.items()}
        plans = {}
        for group, request in acks.items():
            plans[group] = await self._acker.plan(request, ack_outcomes[group], in_transaction=True)
            for index, outcome in zip(ack_indexes[group], ack_outcomes[group], strict=True):
                if outcome.code is not None:
                    raise TransactionRefused(f"rolled back: step {index}: {outcome.error}", index=index)
        push_indexes = [index for index, step in enumerate(steps) if isinstance(step, PushItem)]
        flush = Flush([PushRequest(tenant, [step for step in steps if isinstance(step, PushItem)], traced=True)])
        await self._pusher.draft(flush)
        flat = [(group, plan) for group, some in plans.items() for plan in some]
        if release:
            for _, plan in flat:
                if plan.ack.unordered:
                    plan.ack.release = True
                    continue
                upto = plan.ack.done[0][1] if plan.ack.done else 0
                plan.ack.nacks = [Nack(upto, charge=False, error="released", delay_ms=0)]
        acked = await self._commit(
            commit or self._store.messages.transact, flush, flat, acks, ack_indexes, push_indexes
        )
        outcomes: list[Outcome | None] = [None] * len(steps)
        for (group, plan), result in zip(flat, acked, strict=True):
            if not self._acker.answer(plan, result, ack_outcomes[group]):
                await self._acker.answer_each(plan, result, acks[group].items, ack_outcomes[group])
        for group, indexes in ack_indexes.items():
            for index, answer in zip(indexes, ack_outcomes[group], strict=True):
                outcomes[index] = answer
        pushed = flush.outcomes[0]
        if isinstance(pushed, Exception):
            raise pushed
        for index, stored in zip(push_indexes, pushed, strict=True):
            outcomes[index] = stored
        return outcomes  # type: ignore[return-value]

    def _acks(self, tenant: str, steps: Sequence[Step]) -> tuple[dict[str, AckRequest], dict[str, list[int]]]:
        """The acks by group, and where in the transaction they stand."""
        items: dict[str, list[AckItem]] = defaultdict(list)
        indexes: dict[str, list[int]] = defaultdict(list)
        for index, step in enumerate(steps):
            if isinstance(step, AckStep):
                if step.item.status == "retry":
                    raise InvalidRequest(
                        f"step {index}: `retry` has no place in a transaction; release the lease instead"
                    )
                items[step.group].append(step.item)
                indexes[step.group].append(index)
            elif step.deliver_at is not None or step.delay_ms is not None:
                raise InvalidRequest(f"step {index}: a transaction cannot schedule; push without deliverAt and delayMs")
        return {group: AckRequest(tenant, group, some) for group, some in items.items()}, indexes

    async def _commit(
        self,
        commit: Commit,
        flush: Flush,
        plans: list[tuple[str, Plan]],
        acks: dict[str, AckRequest],
        ack_indexes: dict[str, list[int]],
        push_indexes: list[int],
    ) -> list[AckResult]:
        if isinstance(error := flush.outcomes[0], Exception):
            raise error
        pauses = iter(UNKNOWN_PAUSES)
        unknown = False
        for _ in range(_ROUNDS_MAX):
            drafts = list(flush.drafts.values())
            try:
                acked, pushed = await commit([plan.ack for _, plan in plans], [draft.slice for draft in drafts])
                _check_acks(plans, acked, acks, ack_indexes)
                if all(isinstance(result, Stored) for result in pushed):
                    if drafts and only_repeats([plan.ack for _, plan in plans], acked):
                        raise _applied_before(push_indexes[drafts[0].owners[0][1]])
                    await self._pusher.apply(flush, drafts, pushed)
                    return acked
                await self._mend(flush, drafts, pushed, push_indexes)
            except OutcomeUnknown:
                unknown = True
                if (pause := next(pauses, None)) is None or not all(d.slice.options.dedup_seconds for d in drafts):
                    raise
                await asyncio.sleep(pause)
                doubt(drafts)
            except FairlaneError as refusal:
                if not unknown:
                    raise
                raise still_unknown(refusal) from refusal
        changing = StoreUnavailable("the store kept changing under this transaction; try again")
        raise still_unknown(changing) if unknown else changing

    async def _mend(
        self, flush: Flush, drafts: list[Draft], pushed: Sequence[PushResult], push_indexes: list[int]
    ) -> None:
        """Nothing was applied: take out what is stored already, look again for what moved, and refuse what cannot
        be."""
        for draft, result in zip(drafts, pushed, strict=True):
            if isinstance(result, OperationsAhead):
                _, queue, partition = draft.partition
                raise LaneWaiting(
                    f"rolled back: operations wait in partition {partition!r} of queue {queue!r}; try again"
                )
            if isinstance(result, Full):
                index = push_indexes[draft.owners[0][1]]
                error = full(result)
                raise TransactionRefused(f"rolled back: step {index}: {error}", index=index) from error
        undecided = [
            (draft, result) for draft, result in zip(drafts, pushed, strict=True) if not isinstance(result, Stored)
        ]
        await self._pusher.apply(flush, [draft for draft, _ in undecided], [result for _, result in undecided])


def _applied_before(index: int) -> AlreadyApplied:
    return AlreadyApplied(
        f"rolled back: step {index}: the acks of this transaction were applied by an earlier try, and this push is not "
        "known from it; a transaction whose pushes have a transactionId may be repeated",
        index=index,
    )


def _check_acks(
    plans: list[tuple[str, Plan]],
    acked: Sequence[AckResult],
    acks: dict[str, AckRequest],
    ack_indexes: dict[str, list[int]],
) -> None:
    """TransactionRefused names the first step that cannot be."""
    refused: dict[int, str | None] = {}
    for (group, plan), result in zip(plans, acked, strict=True):
        steps, items = ack_indexes[group], acks[group].items
        if result.state == "operations_ahead":
            index = steps[plan.indexes[0]]
            raise LaneWaiting(f"rolled back: step {index}: earlier acks of its partition wait; try again")
        for item, position in plan.items:
            outcome = outcome_of(items[item], position, plan.ack, result)
            if not outcome.success and outcome.code != "redelivered":
                refused[steps[item]] = outcome.error
    if refused:
        index = min(refused)
        raise TransactionRefused(f"rolled back: step {index}: {refused[index]}", index=index)
