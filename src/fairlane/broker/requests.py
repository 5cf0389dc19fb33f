"""Requests of a tenant, already decoded and checked. The verbs of the broker and the HTTP routes share them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.ack import AckRequest
from fairlane.broker.ack_flight import AttachedAcks
from fairlane.broker.fan_ins import FanIns
from fairlane.broker.pop_outcome import PopOutcome
from fairlane.broker.push_batch import PushRequest
from fairlane.broker.resource import Resource
from fairlane.broker.transact import Commit, Outcome, Step, size_of
from fairlane.errors import FairlaneError
from fairlane.model.fan_in import FanInStep
from fairlane.model.lease import PopRequest
from fairlane.model.message import PushItem, are_uniform_items, check_each
from fairlane.model.outcome import AckOutcome, UniformAcks
from fairlane.model.principal import ANYBODY, Principal

if TYPE_CHECKING:
    from fairlane.broker.engine import TenantScope


def checked_push(tenant: str, items: Sequence[PushItem]) -> PushRequest:
    """Check the items, and return the request that pushes them. InvalidRequest names the index of a bad item."""
    if are_uniform_items(items):
        return PushRequest(tenant, items, plain=True)
    return PushRequest(tenant, items, check_each(items))


class Requests(Resource):
    def __init__(self, scope: TenantScope) -> None:
        super().__init__(scope)
        self.admit_push = scope.intake.admit
        self.push = scope.intake.push
        self._fan_ins = FanIns(scope)

    async def transact(
        self,
        steps: Sequence[Step],
        *,
        commit: Commit | None = None,
        more: int = 0,
        release: bool = False,
        fan_ins: Sequence[FanInStep] = (),
    ) -> list[Outcome]:
        """Run a transaction of steps that were checked already.

        `commit` replaces the verb of the store, for a transaction with `more` other changes. `release` releases the
        messages of the leases that were not acked. `fan_ins` name some of the pushes as their parts.
        """
        self._engine.admission.check_running()
        await self._scope.quota.check(*size_of(steps))
        await self._scope.intake.load_specs()
        steps = self._scope.compiled_specs.admit_steps(steps)
        steps = await self._engine.priorities.apply(self._tenant, steps, away=not self._engine.write_router.health.up)
        self._engine.write_router.check(self._tenant, steps)
        prepared = await self._fan_ins.prepare(fan_ins)
        transaction = self._engine.transactor.transact(
            self._tenant, steps, commit=commit, release=release, fan_ins=prepared
        )
        telemetry = self._engine.telemetry
        outcomes = await telemetry.measure(telemetry.transaction, len(steps) + more, transaction)
        self._engine.announcer.wake_polls()
        return outcomes

    async def pop(self, request: PopRequest) -> PopOutcome:
        admission = self._engine.admission
        if admission.stopped:
            admission.check_running()
        if admission.acks.waiting or "pop" not in admission.calm or not admission.health.up:
            admission.defers("pop", self._tenant)
        else:
            admission.decisions["pop"]["execute"] += 1
        popping = self._engine.popper.pop(request)
        if (most := self._scope.quota.quotas.polls) is not None and request.wait_seconds:
            return await self._scope.quota.wait(popping, most)
        return await popping

    async def ack(self, request: AckRequest) -> Sequence[AckOutcome]:
        items, began = request.items, perf_counter()
        count = items.size if type(items) is UniformAcks else len(items)
        if not count:
            return []
        admission = self._engine.admission
        if admission.stopped:
            admission.check_running()
        batcher = admission.acks
        if batcher.waiting or "ack" not in admission.calm or not admission.health.up:
            batcher = admission.ack_operations if admission.defers("ack", self._tenant) else batcher
        else:
            admission.decisions["ack"]["execute"] += 1
        try:
            outcomes = await batcher.put(request, count)
        except Exception:  # counted, then raised
            self._engine.telemetry.ack.errors += 1
            raise
        self._engine.telemetry.record(self._engine.telemetry.ack, began, count)
        return outcomes

    async def ack_and_pop(
        self, acks: AckRequest, request: PopRequest
    ) -> tuple[Sequence[AckOutcome], PopOutcome | FairlaneError]:
        """Ack, and pop like `pop`. Returns the error of the pop, because the acks were applied.

        Both are one transaction of the store, in which the pop may get messages that the acks released. A long poll
        waits after it. Acks that cannot join the pop are applied before it: those of other queues or without a lease,
        in a queue with limits, and while acks wait in the broker or its journal.
        """
        give_up_at = monotonic() + request.wait_seconds
        attached = await self._attach(acks, request)
        popped: PopOutcome | None = None
        if attached is not None:
            popping = self._engine.popper.pop_until(request, give_up_at, attached)
            with suppress(FairlaneError):  # the error of the pop that follows counts
                most = self._scope.quota.quotas.polls if request.wait_seconds else None
                popped = await popping if most is None else await self._scope.quota.wait(popping, most)
        complete = attached is not None and not attached.pending
        outcomes: Sequence[AckOutcome]
        try:
            if attached is None:
                outcomes = await self.ack(acks)
            else:
                if pending := attached.pending:
                    attached.settle(pending, await self.ack(attached.rest()))
                outcomes = attached.outcomes
        except BaseException:
            if popped is not None and popped.lease is not None:
                self._engine.popper.cleanup.give_back(popped.lease)
            raise
        if popped is None or not (popped.lanes or complete):
            left = max(0.0, give_up_at - monotonic())
            try:
                popped = await self.pop(msgspec.structs.replace(request, wait_seconds=left))
            except FairlaneError as error:
                return outcomes, error
        return outcomes, popped

    async def _attach(self, acks: AckRequest, request: PopRequest) -> AttachedAcks | None:
        """Return the acks for a pop that applies them. Returns None if it cannot."""
        admission, catalogue = self._engine.admission, self._engine.catalogue
        if admission.stopped:
            admission.check_running()
        known = catalogue.queues.get((self._tenant, request.queue))
        if known is None or known[0].options.is_limited or not admission.admits_at_once("ack", "pop"):
            return None
        attached = await self._engine.attached_acker.attach(acks, known[0].id)
        if attached is not None:
            admission.decisions["ack"]["execute"] += 1
            admission.decisions["pop"]["execute"] += 1
        return attached

    async def pop_any(
        self, request: PopRequest, *, namespace: str | None, task: str | None, caller: Principal = ANYBODY
    ) -> PopOutcome:
        """Pop from any queue with these labels that has messages, among those that the caller may pop from."""
        self._engine.admission.check_running()
        self._engine.admission.defers("pop", self._tenant)
        return await self._engine.any_queue_popper.pop(request, namespace, task, caller)
