"""Which operations are executed, which are kept and applied later, and which are refused, by how busy the store is."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from fairlane.engine.admission import Admission, Gauge, Kind, Limit, Load, Verdict
from fairlane.engine.batcher import Batcher
from fairlane.engine.batchers import Batchers
from fairlane.engine.processor import Processor
from fairlane.errors import Overloaded
from fairlane.telemetry import Telemetry

_LOOK_SECONDS = 0.001
"""When an operation was executed, others of its kind are so for this long without another look at the load."""

KEEPING_COST = 3.0
"""To keep an item for later is taken to cost so many times what it costs to execute it, until it was seen. A flood
begins in a moment: what is let into the queue before that would hold up all that comes behind it."""


class Gate:
    def __init__(
        self, limits: Mapping[Kind, Limit], processor: Processor, telemetry: Telemetry, batchers: Batchers
    ) -> None:
        self.admission = Admission(limits)
        self._processor = processor
        self._telemetry = telemetry
        self._batchers = batchers
        self._gauge = Gauge()
        self._execute_until: dict[Kind, float] = {}

    def must_wait(self, kind: Kind) -> bool:
        """Whether an operation is kept and applied later; Overloaded if it is not even that."""
        if kind not in self.admission.limits:
            return False
        verdict: Verdict = "execute" if self._executes(kind) else self._admit(kind)
        self.admission.decisions[kind][verdict] += 1
        return verdict == "enqueue"

    def check(self, kind: Kind) -> None:
        """Overloaded if one more of this kind is refused now."""
        if self.admission.holds_back(kind) and not self._executes(kind):
            self._admit(kind)

    def _executes(self, kind: Kind) -> bool:
        return perf_counter() < self._execute_until.get(kind, 0.0)

    def _admit(self, kind: Kind) -> Verdict:
        now = perf_counter()
        load = self.load(kind)
        decision = self.admission.decide(kind, load, now=now)
        if decision.verdict == "execute":
            self._execute_until[kind] = now + _LOOK_SECONDS
        elif decision.verdict == "refuse":
            self.admission.count(kind, "refuse")
            self._telemetry.operations[kind].errors += 1
            raise Overloaded(decision.reason, retry_after=decision.retry_after, depth=load.depth)
        return decision.verdict

    def load(self, kind: Kind) -> Load:
        """What admission decides by, as of now."""
        now = perf_counter()
        pushes, acks = self._batchers.pushes, self._batchers.acks
        busy = max(pushes.busy, acks.busy)
        waited = max(pushes.waited(now), acks.waited(now))
        use = self._gauge.feed(now, busy=busy, waited=waited)
        if kind == "ack":
            backlogs = _backlogs(acks, self._batchers.waiting_acks)
        else:
            backlogs = _backlogs(pushes, self._batchers.waiting_pushes)
        return Load(use, self._processor.depth, self._processor.drain_rate, *backlogs)


def _backlogs(direct: Batcher[Any, Any], kept: Batcher[Any, Any]) -> tuple[float | None, float | None]:
    """How long one more takes to be executed, and to be kept."""
    keeping = kept.backlog_seconds()
    if keeping is None and direct.rate:
        keeping = KEEPING_COST * kept.items / direct.rate
    return direct.backlog_seconds(), keeping
