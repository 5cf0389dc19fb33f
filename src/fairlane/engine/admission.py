"""Whether an operation is executed, queued or refused: a pure decision over a snapshot of load.

Requests wait in the batcher first. Only when that wait grows is an operation queued durably (202), and only
when the queue is long as well is it refused (429).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Final, Literal, NamedTuple

Kind = Literal["push", "ack", "pop", "renew", "transaction", "system_event"]
Verdict = Literal["execute", "enqueue", "refuse"]

RETRY_SECONDS: Final = 5.0
"""What a refused caller is told to wait when the drain rate is not known."""
RETRY_SECONDS_MIN: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
LET_GO: Final = 0.8
"""A kind that is queued or refused goes on so until the use falls below this share of its threshold: a load that
hovers about the threshold must not flip the answers."""
BUSY: Final = 0.5
"""Below this share of its threshold a kind is always executed: a burst is not a load."""
WINDOW_SECONDS: Final = 1.0
"""The use is smoothed over about this long: one slow flush is not a load."""
ANSWER_SECONDS: Final = 0.15
WAIT_SECONDS: Final = 0.25
"""A wait in the batcher of this long counts as a store that is used up."""


class Limit(NamedTuple):
    """Thresholds of one kind. Without a `depth` the kind is not queued, but refused at once."""

    use: float
    depth: int | None
    answer_seconds: float = ANSWER_SECONDS
    """On a store that has been busy for a while, whoever would wait longer than this to be executed is queued, and
    whoever would wait longer to be queued is refused, unless it is an ack: even a used-up store has a quick answer."""


LIMITS: Final[Mapping[Kind, Limit]] = {
    "push": Limit(0.70, 10_000),
    "ack": Limit(0.80, 50_000),
    "pop": Limit(0.95, None),
}
"""Kinds that are not here are always executed: a renewal, a transaction or an event that waits is worth nothing."""
PATIENT: Final[Mapping[Kind, Limit]] = {}
"""Everything is executed, however long it takes: for callers that wait anyway."""


class Load(NamedTuple):
    use: float
    """Of the store, 0 to 1 and smoothed: half of it is how busy the flushes are, half how long requests wait."""
    depth: int = 0
    """Operations that wait in the operation queue."""
    drain_rate: float = 0.0
    """Operations that left it a second, lately; 0 when unknown."""
    execute_seconds: float = 0.0
    """How long one more operation takes to be executed, because of what waits and is under way; 0 when unknown."""
    enqueue_seconds: float = 0.0
    """And how long it takes to be queued."""


class Decision(NamedTuple):
    verdict: Verdict
    reason: str
    """A sentence for people."""
    retry_after: float = 0.0
    """Seconds; only of a refusal."""


EXECUTE: Final = Decision("execute", "the store has room")


def decide(kind: Kind, load: Load, *, limits: Mapping[Kind, Limit] = LIMITS, engaged: bool = False) -> Decision:
    """What to do with an operation now. `engaged`: the last of its kind was not executed."""
    limit = limits.get(kind)
    if limit is None:
        return EXECUTE
    bound = limit.use * LET_GO if engaged else limit.use
    if load.use > bound:
        busy = f"the store is {load.use:.0%} used, past {bound:.0%} for a {kind}"
    elif load.use > limit.use * BUSY and load.execute_seconds > limit.answer_seconds and limit.depth is not None:
        busy = f"the store is {load.use:.0%} used, and {load.execute_seconds:.2f} s of work wait for it"
    else:
        return EXECUTE
    if limit.depth is None:
        return Decision("refuse", busy, RETRY_SECONDS)
    if load.depth >= limit.depth:
        why = f"{busy}, and {load.depth} operations wait, of {limit.depth}"
        return Decision("refuse", why, _retry_after(load, limit))
    # An ack that is refused has its messages delivered again, so that it may rather take its time.
    if load.enqueue_seconds > limit.answer_seconds and kind != "ack":
        why = f"{busy}, and to keep one more for later takes {load.enqueue_seconds:.2f} s"
        return Decision("refuse", why, RETRY_SECONDS_MIN)
    return Decision("enqueue", busy)


def _retry_after(load: Load, limit: Limit) -> float:
    """How long the queue takes to fall to where the kind is let go."""
    if load.drain_rate <= 0 or limit.depth is None:
        return RETRY_SECONDS
    surplus = load.depth - limit.depth * LET_GO
    return min(RETRY_SECONDS_MAX, max(RETRY_SECONDS_MIN, surplus / load.drain_rate))


class Gauge:
    """The smoothed use of the store. It is fed when somebody asks, so an idle engine pays nothing for it."""

    def __init__(self, *, window_seconds: float = WINDOW_SECONDS, wait_seconds: float = WAIT_SECONDS) -> None:
        self._window = window_seconds
        self._wait = wait_seconds
        self._at: float | None = None
        self.use = 0.0

    def feed(self, now: float, *, busy: float, waited: float) -> float:
        """`busy` is the share of the flushes at work, `waited` how long the oldest request has waited; the use."""
        if self._at is None:
            self._at = now
        passed, self._at = now - self._at, now
        sample = busy * (0.5 + 0.5 * min(1.0, waited / self._wait))
        self.use += (sample - self.use) * (1 - exp(-max(0.0, passed) / self._window))
        return self.use


class Admission:
    """Decides for one broker, and remembers which kinds it last held back."""

    def __init__(self, limits: Mapping[Kind, Limit] = LIMITS) -> None:
        self.limits = limits
        self.decisions: dict[Kind, dict[Verdict, int]] = {
            kind: {"execute": 0, "enqueue": 0, "refuse": 0} for kind in limits
        }
        """How many of each kind went which way, for the metrics."""
        self._engaged: set[Kind] = set()

    def holds_back(self, kind: Kind) -> bool:
        """Whether the last of this kind was not executed."""
        return kind in self._engaged

    def decide(self, kind: Kind, load: Load) -> Decision:
        decision = decide(kind, load, limits=self.limits, engaged=kind in self._engaged)
        if decision.verdict == "execute":
            self._engaged.discard(kind)
        else:
            self._engaged.add(kind)
        if kind in self.decisions:
            self.decisions[kind][decision.verdict] += 1
        return decision
