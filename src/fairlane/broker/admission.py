"""Admission: whether a request is executed, becomes an operation or is refused, by how long it would wait.

Requests wait in their batcher and travel together. One that would wait there too long becomes an operation, applied
later (202), and only when there are as many operations as may be is it refused (429). A pop never becomes one: it is
refused while acks would wait too long, for then what is handed out could not be finished in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from fairlane.broker.batchers import Batchers
from fairlane.broker.deferral.drain import OperationDrain
from fairlane.errors import Overloaded
from fairlane.runtime.batcher import Batcher
from fairlane.runtime.rate import retry_after
from fairlane.telemetry import Telemetry

Kind = Literal["push", "ack", "pop"]
Decision = Literal["execute", "enqueue", "refuse"]

WAIT_SECONDS_MAX: Final = 2.0
CALLERS: Final = 500
"""So many requests at once are no flood: whoever sent them waits for the answer. While no more can be operations at
once, they wait for the store, however slow it is."""


class Limit(NamedTuple):
    wait_seconds: float
    """The longest wait to be executed. Below 0 nothing is."""
    operations: int
    """How many operations there may be, of any kind; 0 where none is made."""


LIMITS: Final[Mapping[Kind, Limit]] = {
    "push": Limit(WAIT_SECONDS_MAX, 10_000),
    "ack": Limit(WAIT_SECONDS_MAX, 50_000),
    "pop": Limit(WAIT_SECONDS_MAX, 0),
}
PATIENT: Final[Mapping[Kind, Limit]] = {}
"""Everything is executed, however long it takes: for callers that wait anyway."""


class Admission:
    def __init__(
        self, limits: Mapping[Kind, Limit], batchers: Batchers, drain: OperationDrain, telemetry: Telemetry
    ) -> None:
        self.limits = limits
        self.decisions: dict[Kind, dict[Decision, int]] = {
            kind: {"execute": 0, "enqueue": 0, "refuse": 0} for kind in LIMITS
        }
        """How many of each kind went which way, for the metrics."""
        self._drain = drain
        self._telemetry = telemetry
        self._batchers: Mapping[Kind, tuple[Batcher[Any, Any], Batcher[Any, Any]]] = {
            "push": (batchers.pushes, batchers.push_operations),
            "ack": (batchers.acks, batchers.ack_operations),
            "pop": (batchers.acks, batchers.ack_operations),
        }

    def wait_seconds(self, kind: Kind) -> float:
        """How long one more of this kind would wait; of a pop, its acks."""
        return self._batchers[kind][0].wait_seconds()

    def defers(self, kind: Kind) -> bool:
        """Whether one more of this kind becomes an operation; Overloaded if it is not even that."""
        limit = self.limits.get(kind)
        if limit is None:
            return False
        late = self.wait_seconds(kind) > limit.wait_seconds
        if late:
            self._check_room(kind)
            late = self._depth(kind) < limit.operations
        self.decisions[kind]["enqueue" if late else "execute"] += 1
        return late

    def check(self, kind: Kind) -> None:
        """Overloaded if one more of this kind is refused now, whatever is in it."""
        limit = self.limits.get(kind)
        if limit is not None and self.wait_seconds(kind) > limit.wait_seconds:
            self._check_room(kind)

    def _check_room(self, kind: Kind) -> None:
        refusal = self.refusal(kind)
        if refusal is not None:
            self.decisions[kind]["refuse"] += 1
            self._telemetry.verbs[kind].errors += 1
            raise refusal

    def _depth(self, kind: Kind) -> int:
        """Operations, and what is on its way to be one."""
        return self._drain.depth + self._batchers[kind][1].items

    def refusal(self, kind: Kind) -> Overloaded | None:
        """Why one more of this kind cannot even be an operation; None if it can."""
        limit, depth = self.limits.get(kind), self._depth(kind)
        if limit is None or depth < limit.operations:
            return None
        if self._drain.depth < limit.operations and sum(one.requests for one in self._batchers[kind]) <= CALLERS:
            return None
        wait = self.wait_seconds(kind)
        if kind == "pop":
            why = f"acks wait {wait:.1f} s, so that nothing more is handed out"
            return Overloaded(why, retry_after=retry_after(wait), depth=depth)
        why = f"the store is {wait:.1f} s behind, and {depth} operations wait, of {limit.operations}"
        return Overloaded(why, retry_after=retry_after(self._drain.rate.seconds_for(depth)), depth=depth)

    def pause_for_operations(self) -> float:
        """How long a push that meets operations in its partition waits for them before it becomes one: as long as they
        probably take, and no longer than any other waits. Enqueued at once, each push would make its partition
        wait for longer, and a load that is over would never be got rid of."""
        depth = self._drain.depth
        limit = self.limits.get("push") if depth else None
        if limit is None:
            return 0.0
        return max(0.0, min(limit.wait_seconds, self._drain.rate.seconds_for(depth) or 0.0))
