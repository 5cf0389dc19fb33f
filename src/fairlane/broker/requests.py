"""The requests of a tenant, checked and decoded already: what the broker's verbs and its HTTP routes share."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from fairlane.broker.ack import AckRequest
from fairlane.broker.fan_ins import FanIns
from fairlane.broker.pop_outcome import PopOutcome
from fairlane.broker.resource import Resource
from fairlane.broker.transact import Commit, Outcome, Step, size_of
from fairlane.model.fan_in import FanInStep
from fairlane.model.lease import PopRequest
from fairlane.model.outcome import AckOutcome, UniformAcks
from fairlane.model.principal import ANYBODY, Principal

if TYPE_CHECKING:
    from fairlane.broker.engine import TenantScope


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

        `commit` replaces the verb of the store, for a transaction that changes `more` values besides. `release` returns
        the messages that the acks leave of their leases. `fan_ins` name some of the pushes as their parts.
        """
        self._engine.admission.check_running()
        await self._scope.quota.check(*size_of(steps))
        await self._scope.intake.know_specs()
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

    async def pop_any(
        self, request: PopRequest, *, namespace: str | None, task: str | None, caller: Principal = ANYBODY
    ) -> PopOutcome:
        """Pop from any queue with these labels that has messages, among those that the caller may pop from."""
        self._engine.admission.check_running()
        self._engine.admission.defers("pop", self._tenant)
        return await self._engine.any_queue_popper.pop(request, namespace, task, caller)
