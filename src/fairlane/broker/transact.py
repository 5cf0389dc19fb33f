"""Transactions: acks and pushes over any queues, all or nothing. They are never combined with other requests."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.ack_plan import Plan, outcome_of
from fairlane.broker.capacity import full
from fairlane.broker.fan_in_parts import fan_in_commit
from fairlane.broker.fan_in_watch import FanInWatch
from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import PartitionBatch, PushFlight, PushRequest, recheck_ids
from fairlane.broker.scheduled import Scheduler, scheduled_slice
from fairlane.broker.unique_flight import UniqueFlight
from fairlane.errors import (
    AlreadyApplied,
    FairlaneError,
    InvalidRequest,
    LaneWaiting,
    OutcomeUnknown,
    StoreUnavailable,
    TransactionRefused,
    as_outcome_unknown,
)
from fairlane.model.fan_in import FanInStep
from fairlane.model.ids import PartitionId
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckItem, AckOutcome, Outcomes, PushOutcome
from fairlane.model.queue import Queue
from fairlane.runtime.backoff import UNKNOWN_OUTCOME_PAUSES
from fairlane.store.contract.ack_rules import only_repeats
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import (
    AckResult,
    Added,
    Full,
    Nack,
    OperationsAhead,
    PushResult,
    Stored,
)
from fairlane.store.families.unique_keys import KeyTaken, NewUnique

_ROUNDS_MAX = 100


class AckStep(msgspec.Struct):
    """An ack inside a transaction. `failed` is a failed attempt, as outside of one; `retry` is refused."""

    item: AckItem
    group: str


def size_of(steps: Sequence[Step]) -> tuple[int, int]:
    """Return the number of pushed messages of a transaction, and the bytes of their payloads."""
    sizes = [len(step.payload) for step in steps if isinstance(step, PushItem)]
    return len(sizes), sum(sizes)


class _Acks(msgspec.Struct):
    """The acks of one group in a transaction, with their step indexes."""

    request: AckRequest
    steps: list[int]
    outcomes: Outcomes


class _Pushes(msgspec.Struct):
    """The pushes of a transaction in flight, with their step indexes: those to store now, and scheduled ones."""

    flight: PushFlight
    steps: list[int]
    scheduled: PushFlight
    scheduled_steps: list[int]

    def batches(self) -> list[PartitionBatch]:
        return [*self.flight.batches.values(), *self.scheduled.batches.values()]

    def outcomes(self) -> dict[int, Outcome]:
        """Return the outcomes by step. Raises the error of a push that has none."""
        found: dict[int, Outcome] = {}
        for flight, steps in ((self.flight, self.steps), (self.scheduled, self.scheduled_steps)):
            if isinstance(outcomes := flight.outcomes[0], Exception):
                raise outcomes
            found |= zip(steps, outcomes, strict=True)
        return found


_Plans = list[tuple[_Acks, Plan]]
Commit = Callable[..., Awaitable[tuple[list[AckResult], list[PushResult]]]]
"""A verb of the store that takes acks and slices, and scheduled slices if it supports them."""
Step = PushItem | AckStep
Outcome = PushOutcome | AckOutcome


class Transactor:
    def __init__(self, store: Store, pusher: Pusher, scheduler: Scheduler, acker: Acker, fan_ins: FanInWatch) -> None:
        self._store = store
        self._fan_ins = fan_ins
        self._pusher = pusher
        self._scheduler = scheduler
        self._acker = acker

    async def transact(
        self,
        tenant: str,
        steps: Sequence[Step],
        *,
        commit: Commit | None = None,
        release: bool = False,
        fan_ins: Sequence[tuple[FanInStep, Queue]] = (),
    ) -> list[Outcome]:
        """Apply a transaction. Returns one outcome per step, in order.

        Raises TransactionRefused, and applies nothing, if a step is refused. A push with a known transactionId repeats
        this transaction or part of it, and counts as done. An unknown one is refused (AlreadyApplied) if all acks are
        repeats. `commit` is a custom verb of the store, which schedules nothing. With `release` the rest of the leases
        is released. `fan_ins` are stored with their parts, which are pushes of the transaction, each with the queue of
        its callback.
        """
        parts, plans = _by_group(tenant, steps), _Plans()
        for part in parts:
            planned = await self._acker.plan(part.request, part.outcomes)
            plans += [(part, plan) for plan in planned]
            for index, outcome in zip(part.steps, part.outcomes, strict=True):
                if outcome.code is not None:
                    raise TransactionRefused(f"rolled back: step {index}: {outcome.error}", index=index)
        _check_order(plans)
        pushes = self._pushes(tenant, steps, schedules=commit is None, parts=[fan_in for fan_in, _ in fan_ins])
        await self._pusher.pack(pushes.flight)
        if pushes.scheduled_steps:
            await self._pusher.pack(pushes.scheduled)
        for _, plan in plans if release else ():
            ack, upto = plan.ack, plan.ack.done[0][1] if plan.ack.done else 0
            ack.release = ack.unordered
            if not ack.unordered and not ack.nacks:
                ack.nacks = [Nack(upto, charge=False, error="released", delay_ms=0)]
        if fan_ins:
            commit = fan_in_commit(self._store, self._fan_ins, tenant, pushes.flight, pushes.steps, fan_ins)
        acked = await self._commit(commit, pushes, plans)
        for (part, plan), result in zip(plans, acked, strict=True):
            if not self._acker.answer(plan, result, part.outcomes):
                await self._acker.answer_each(plan, result, part.request.items, part.outcomes)
        outcomes = pushes.outcomes()
        for part in parts:
            outcomes.update(zip(part.steps, part.outcomes, strict=True))
        return [outcomes[index] for index in range(len(steps))]

    def _pushes(self, tenant: str, steps: Sequence[Step], *, schedules: bool, parts: Sequence[FanInStep]) -> _Pushes:
        """Return the pushes in flight. Raises InvalidRequest for one that cannot be scheduled here."""
        pushed = {index: step for index, step in enumerate(steps) if isinstance(step, PushItem)}
        later = {index: item for index, item in pushed.items() if self._scheduler.is_scheduled(item)}
        if later and not schedules:
            raise InvalidRequest(f"step {min(later)}: nothing can be scheduled here; leave out deliverAt and delayMs")
        for part in parts:
            if wrong := later.keys() & range(part.first, part.first + part.total):
                raise InvalidRequest(
                    f"step {min(wrong)}: a part of a fan-in cannot be scheduled; leave out deliverAt and delayMs"
                )
        now = {index: item for index, item in pushed.items() if index not in later}
        return _Pushes(
            PushFlight([PushRequest(tenant, list(now.values()), traced=True)]),
            list(now),
            PushFlight([PushRequest(tenant, list(later.values()))]),
            list(later),
        )

    def _verb(self, commit: Commit | None, unique: Sequence[NewUnique]) -> Commit:
        if commit is not None:
            return partial(commit, unique=unique) if unique else commit
        return partial(self._store.unique_keys.commit, unique) if unique else self._store.messages.transact

    async def _commit(self, commit: Commit | None, pushes: _Pushes, plans: _Plans) -> list[AckResult]:
        pushes.outcomes()
        unique = UniqueFlight(self._store, [pushes.flight, pushes.scheduled])
        pauses = iter(UNKNOWN_OUTCOME_PAUSES)
        unknown = False
        acks = [plan.ack for _, plan in plans]
        for _ in range(_ROUNDS_MAX):
            verb = self._verb(commit, await unique.settle())
            batches, scheduled = pushes.flight.undecided_batches(), pushes.scheduled.undecided_batches()
            later = [[scheduled_slice(one, pushes.scheduled) for one in scheduled]]
            try:
                acked, results = await verb(acks, [one.slice for one in batches], *(later if scheduled else ()))
                _check_acks(plans, acked)
                pushed, added = results[: len(batches)], results[len(batches) :]
                if all(isinstance(result, Stored | Added) for result in results):
                    if results and only_repeats(acks, acked):
                        raise _applied_before(pushes)
                    await self._pusher.apply(pushes.flight, batches, pushed)
                    await self._scheduler.apply(pushes.scheduled, scheduled, added)
                    return acked
                await self._prepare_retry(pushes, batches, pushed)
                undecided = [pair for pair in zip(scheduled, added, strict=True) if not isinstance(pair[1], Added)]
                await self._scheduler.apply(pushes.scheduled, *zip(*undecided, strict=True)) if undecided else None
            except KeyTaken:
                continue
            except OutcomeUnknown:
                unknown = pushes.scheduled.maybe_applied = True
                batches += scheduled
                if (pause := next(pauses, None)) is None or not all(d.slice.options.dedup_seconds for d in batches):
                    raise
                await asyncio.sleep(pause)
                recheck_ids(batches)
            except FairlaneError as refusal:
                if not unknown:
                    raise
                raise as_outcome_unknown(refusal) from refusal
        changing = StoreUnavailable("the queue kept changing during this transaction; try again")
        raise as_outcome_unknown(changing) if unknown else changing

    async def _prepare_retry(
        self, pushes: _Pushes, batches: list[PartitionBatch], pushed: Sequence[PushResult]
    ) -> None:
        """Prepare another attempt after nothing was applied.

        Removes stored messages, looks up moved partitions, and refuses the rest.
        """
        for batch, result in zip(batches, pushed, strict=True):
            if isinstance(result, OperationsAhead):
                _, queue, partition = batch.partition
                raise LaneWaiting(
                    f"rolled back: operations wait in partition {partition!r} of queue {queue!r}; try again"
                )
            if isinstance(result, Full):
                index = pushes.steps[batch.owners[0][1]]
                error = full(result)
                raise TransactionRefused(f"rolled back: step {index}: {error}", index=index) from error
        undecided = [
            (batch, result) for batch, result in zip(batches, pushed, strict=True) if not isinstance(result, Stored)
        ]
        await self._pusher.apply(pushes.flight, [batch for batch, _ in undecided], [result for _, result in undecided])


def _applied_before(pushes: _Pushes) -> AlreadyApplied:
    found = ((pushes.flight, pushes.steps), (pushes.scheduled, pushes.scheduled_steps))
    index = next(steps[batch.owners[0][1]] for flight, steps in found for batch in flight.batches.values())
    return AlreadyApplied(
        f"rolled back: step {index}: an earlier attempt applied the acks of this transaction, and this push cannot be "
        "found by its id; a transaction can be repeated if its pushes have a transactionId",
        index=index,
    )


def _by_group(tenant: str, steps: Sequence[Step]) -> list[_Acks]:
    """Return the acks of a transaction, by group."""
    items: dict[str, dict[int, AckItem]] = defaultdict(dict)
    verdicts: dict[tuple[str, PartitionId, str, int | None], int] = {}
    for index, step in enumerate(steps):
        if isinstance(step, AckStep):
            if step.item.status == "retry":
                raise InvalidRequest(
                    f"step {index}: `retry` is not possible in a transaction; release the lease instead"
                )
            message = step.group, step.item.partition, step.item.transaction_id, step.item.position
            before = verdicts.setdefault(message, index)
            verdict = items[step.group].get(before, step.item).status
            if verdict != step.item.status and {verdict, step.item.status} != {"completed", "success"}:
                raise InvalidRequest(
                    f"step {index}: this message is acked as `{verdict}` in step {before}, and as "
                    f"`{step.item.status}` here; ack it once"
                )
            items[step.group][index] = step.item
    requests = {group: AckRequest(tenant, group, list(some.values())) for group, some in items.items()}
    return [_Acks(request, list(items[group]), Outcomes(request.items)) for group, request in requests.items()]


def _check_order(plans: _Plans) -> None:
    """Raise TransactionRefused if a step acks a message behind a failed one of its ordered lane.

    That message is delivered again, so the pushes that belong to it would be stored twice.
    """
    for part, plan in plans:
        if plan.ack.nacks and not plan.ack.unordered:
            late = [part.steps[item] for item, position in plan.items if position > plan.ack.nacks[0].position]
            if late:
                raise TransactionRefused(
                    f"rolled back: step {min(late)}: an earlier message of its partition failed, so this one is "
                    "delivered again; ack the failed message last, or in a call of its own",
                    index=min(late),
                )


def _check_acks(plans: _Plans, acked: Sequence[AckResult]) -> None:
    """Raise TransactionRefused for the first step that cannot be applied."""
    refused: dict[int, str | None] = {}
    for (part, plan), result in zip(plans, acked, strict=True):
        if result.state == "operations_ahead":
            index = part.steps[plan.indexes[0]]
            raise LaneWaiting(f"rolled back: step {index}: earlier acks of its partition wait; try again")
        for item, position in plan.items:
            outcome = outcome_of(part.request.items[item], position, plan.ack, result)
            if not outcome.success and outcome.code != "redelivered":
                refused[part.steps[item]] = outcome.error
    if refused:
        index = min(refused)
        raise TransactionRefused(f"rolled back: step {index}: {refused[index]}", index=index)
