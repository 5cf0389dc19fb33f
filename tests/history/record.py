"""The history of a run: every push, delivery and ack with the time it took and its fate, and the log at the end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Fate = Literal["done", "deferred", "refused", "unknown"]
"""`deferred` is a 202. `unknown` is a timeout, a lost connection or a 503: it may have happened."""


class Lane(NamedTuple):
    """A partition of a queue."""

    queue: str
    partition: str


@dataclass(frozen=True)
class Push:
    """A message that a producer pushed, from its first attempt to its last answer."""

    lane: Lane
    id: str
    began: float
    ended: float
    fate: Fate
    broker: int = 0
    in_journal: bool = False
    """A 202 that waits in the journal of `broker`, which orders only the pushes through that broker."""
    roamed: bool = False
    """Another broker got an attempt too, and may have stored it before what waits in the journal of `broker`."""


@dataclass(frozen=True)
class Delivery:
    """A message in the answer to a pop."""

    lane: Lane
    group: str
    id: str
    position: int
    lease: str
    began: float
    ended: float


@dataclass(frozen=True)
class Ack:
    """An attempt to settle a delivered message. `status` is `completed`, `failed` or `retry`."""

    lane: Lane
    group: str
    id: str
    lease: str
    status: str
    began: float
    ended: float
    fate: Fate
    pushed: str | None = None
    """The id of the message that the same transaction pushed."""


@dataclass(frozen=True)
class DeadLetter:
    lane: Lane
    id: str
    """The transaction id of the dead message."""


@dataclass
class History:
    """Everything that the clients of a run observed."""

    pushes: list[Push] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    replays: dict[str, Fate] = field(default_factory=dict)
    """The fate of the replay of each dead message, by the id of the message."""
    copies: dict[str, str] = field(default_factory=dict)
    """The dead message that a message in the log is a replay of, by the id of the copy."""
    log: dict[Lane, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The ids in each partition at the end, in order."""
    odd_answers: list[str] = field(default_factory=list)
    """Answers that no fault explains, such as a 500."""
    stuck: list[str] = field(default_factory=list)
    """Messages and acks that were still not delivered or applied after all faults had ended."""


@dataclass(frozen=True)
class Rules:
    """The promises that hold for each queue and group of a run."""

    ordered: frozenset[str] = frozenset()
    """Queues whose partitions are delivered in order."""
    settled: frozenset[tuple[str, str]] = frozenset()
    """Queues and groups that finish every message by an ack, and are never sent back."""
    auto_acked: frozenset[tuple[str, str]] = frozenset()
    """Queues and groups whose pops acknowledge what they return."""
    tokens: frozenset[str] = frozenset()
    """Queues in which each token is moved on by transactions. An id is `token-hop`."""
    poisoned: frozenset[str] = frozenset()
    """Queues in which messages with an id that begins with `poison` always fail."""
