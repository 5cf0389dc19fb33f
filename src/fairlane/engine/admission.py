"""Whether an operation is executed, queued or refused: a pure decision over a snapshot of load.

Requests wait in the batcher first. Only when that wait grows is an operation queued durably (202), and only
when the queue is long as well, or the load lasts, is it refused (429). A store that is used up is kept at work: it
executes what it can answer soon, and the surplus alone is held back.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf
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
"""Below this share of its threshold a kind is always executed, however late: a burst is not a load."""
WINDOW_SECONDS: Final = 1.0
"""The use is smoothed over about this long: one slow flush is not a load."""
ANSWER_SECONDS: Final = 0.15
ROOM: Final = 0.5
"""Of the time for an answer. A store past its threshold, or under a load that holds some back, executes what waits no
longer than this: enough that it never runs dry, and little enough that there is time left for the answer."""
BURST_SECONDS: Final = 0.25
"""To keep an operation and apply it later costs the store more than to execute it. That pays for a burst; a load that
lasts longer than this would only be worse for it."""
LULL_SECONDS: Final = 1.0
"""A load that held nothing back for this long is over."""
WAIT_SECONDS: Final = 0.25
"""A wait in the batcher of this long counts as a store that is used up."""


class Limit(NamedTuple):
    """Thresholds of one kind. Without a `depth` the kind is not queued, but refused at once."""

    use: float
    """Below 0 nothing is executed."""
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
    execute_seconds: float | None = None
    """How long one more operation takes to be executed, because of what waits and is under way; None when unknown."""
    enqueue_seconds: float | None = None
    """And how long it takes to be queued."""
    held_seconds: float = 0.0
    """For how long some of the kind have been held back."""


class Decision(NamedTuple):
    verdict: Verdict
    reason: str
    """A sentence for people."""
    retry_after: float = 0.0
    """Seconds; only of a refusal."""


EXECUTE: Final = Decision("execute", "the store has room")
SOON: Final = Decision("execute", "the store is used up, and takes this one soon")


def decide(kind: Kind, load: Load, *, limits: Mapping[Kind, Limit] = LIMITS, engaged: bool = False) -> Decision:
    """What to do with an operation now. `engaged`: the store has been used up for its kind."""
    limit = limits.get(kind)
    if limit is None:
        return EXECUTE
    bound = limit.use * LET_GO if engaged else limit.use
    wait = load.execute_seconds
    if load.use > bound:
        if wait is not None and wait <= limit.answer_seconds * ROOM and limit.depth is not None and limit.use >= 0:
            return SOON
        busy = f"the store is {load.use:.0%} used, past {bound:.0%} for a {kind}"
    elif limit.depth is not None and _is_late(load, limit):
        busy = f"the store is {load.use:.0%} used, and {wait:.2f} s of work wait for it"
    else:
        return EXECUTE
    if limit.depth is None:
        return Decision("refuse", busy, RETRY_SECONDS)
    return _hold_back(kind, load, limit, limit.depth, busy)


def _is_late(load: Load, limit: Limit) -> bool:
    """Whether an answer would be late on a store that is not used up by what is known of the last second."""
    if load.execute_seconds is None or load.use <= limit.use * BUSY:
        return False
    return load.execute_seconds > limit.answer_seconds * (ROOM if load.held_seconds else 1.0)


def _hold_back(kind: Kind, load: Load, limit: Limit, depth: int, busy: str) -> Decision:
    """Queue or refuse what is not executed."""
    if load.depth >= depth:
        why = f"{busy}, and {load.depth} operations wait, of {depth}"
        return Decision("refuse", why, _retry_after(load, depth))
    if kind == "ack":  # refused, its messages would be delivered again, so that it may rather take its time
        return Decision("enqueue", busy)
    if (load.enqueue_seconds or 0.0) > limit.answer_seconds:
        why = f"{busy}, and to keep one more for later takes {load.enqueue_seconds:.2f} s"
        return Decision("refuse", why, RETRY_SECONDS_MIN)
    if load.execute_seconds is not None and load.held_seconds > BURST_SECONDS:
        why = f"{busy}, for {load.held_seconds:.0f} s now"
        return Decision("refuse", why, RETRY_SECONDS_MIN)
    return Decision("enqueue", busy)


def _retry_after(load: Load, depth: int) -> float:
    """How long the queue takes to fall to where the kind is let go."""
    if load.drain_rate <= 0:
        return RETRY_SECONDS
    surplus = load.depth - depth * LET_GO
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
            kind: {"execute": 0, "enqueue": 0, "refuse": 0} for kind in {**LIMITS, **limits}
        }
        """How many of each kind went which way, for the metrics."""
        self._engaged: set[Kind] = set()
        self._held: dict[Kind, tuple[float, float]] = {}
        """Since when a load has held some of the kind back, and when it last did."""

    def holds_back(self, kind: Kind) -> bool:
        """Whether the store is used up for this kind."""
        return kind in self._engaged

    def decide(self, kind: Kind, load: Load, *, now: float = 0.0) -> Decision:
        """`now` is in seconds, on any clock that does not jump. Whoever acts on it counts it."""
        began_at, last_at = self._held.get(kind, (now, -inf))
        if now - last_at > LULL_SECONDS:
            began_at = now
        decision = decide(
            kind, load._replace(held_seconds=now - began_at), limits=self.limits, engaged=kind in self._engaged
        )
        if decision.verdict != "execute":
            self._engaged.add(kind)
            self._held[kind] = (began_at, now)
        elif decision is EXECUTE:
            self._engaged.discard(kind)
        return decision

    def count(self, kind: Kind, verdict: Verdict) -> None:
        if kind in self.decisions:
            self.decisions[kind][verdict] += 1
