"""Acks that waited: what they come to when their turn is there. A lease that ended meanwhile is told in the result."""

from __future__ import annotations

import msgspec

from fairlane.engine.ack import Acker, AckRequest
from fairlane.engine.settlement import Plan
from fairlane.model.operation import ack_result, read_ack
from fairlane.model.outcome import AckItem, Outcomes
from fairlane.store.operations import Application, ApplyResult, ClaimedLane
from fairlane.store.values import Settled, Stored


class WaitingAcks:
    """What one call said of one lane, under one lease."""

    def __init__(self, lane: ClaimedLane, acker: Acker) -> None:
        self.lane = lane
        self.sequences = [lane.operations[0].sequence]
        self._acker = acker
        self._items: list[AckItem] = []
        self._outcomes = Outcomes([])
        self._plan: Plan | None = None
        self._planned = False

    async def prepare(self) -> Application | str:
        if not self._planned:
            operation = self.lane.operations[0]
            try:
                said = read_ack(operation.payload)
            except msgspec.DecodeError as error:
                return f"its payload cannot be read: {error}"
            self._items, self._outcomes = said.items, Outcomes(said.items)
            request = AckRequest(operation.tenant, said.group, said.items)
            plans = await self._acker.plan(request, self._outcomes, in_transaction=False)
            self._plan = plans[0] if plans else None
            self._planned = True
        settlement = self._plan.settlement if self._plan else None
        return Application(self.lane.claim, self.sequences, 0, self._results, settlement=settlement)

    def met(self, result: ApplyResult) -> bool:
        plan = self._plan
        if not isinstance(result, Settled) or plan is None:
            return False
        self._acker.count(plan, result)
        if result.state == "lost" or result.released:
            self._acker.released(plan)
        # What is left is applied next, or nothing is left and the operation only ends.
        self._plan = self._acker.resolve(plan, result, self._items, self._outcomes)
        return True

    def _results(self, result: Stored | Settled | None) -> list[bytes]:
        outcomes = self._outcomes.copy()
        if isinstance(result, Settled) and self._plan is not None:
            self._acker.resolve(self._plan, result, self._items, outcomes)
        return [ack_result(outcomes)]
