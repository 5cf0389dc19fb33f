"""The queues of a run, and the promises that hold for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TrafficRules:
    """The promises that hold for each queue and group of a run."""

    ordered: frozenset[str] = frozenset()
    """Queues whose partitions are delivered in the order of the pushes."""
    unordered: frozenset[str] = frozenset()
    """Queues with the option `ordering: unordered`, whose messages are leased one by one."""
    settled: frozenset[tuple[str, str]] = frozenset()
    """Queues and groups that finish every message by an ack, and are never sent back."""
    auto_acked: frozenset[tuple[str, str]] = frozenset()
    """Queues and groups whose pops acknowledge what they return."""
    tokens: frozenset[str] = frozenset()
    """Queues in which each token is moved on by transactions. An id is `token-hop`."""
    poisoned: frozenset[str] = frozenset()
    """Queues in which messages with an id that begins with `poison` always fail."""
    lease_seconds: float = 0.0
    """Lease time of every queue. 0 if it is not known."""


LEASE_SECONDS = 3
OPTIONS: Mapping[str, dict[str, Any]] = {
    "plain": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "bank": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "poison": {"leaseTime": LEASE_SECONDS, "retryLimit": 2},
    "auto": {"leaseTime": LEASE_SECONDS},
    "mixed": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000, "ordering": "unordered"},
    "later": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
}
"""The options of each queue, by its name without the prefix."""
PARTITIONS = {"plain": 6, "bank": 4, "poison": 3, "auto": 3, "mixed": 2, "later": 2}
TOKENS = 12
GROUPS = [("plain", "billing"), ("plain", "search"), ("bank", "movers"), ("poison", "tasters"), ("mixed", "any")]
GROUPS += [("later", "any")]
AUDIT = "audit"
"""The group that reads every partition from its beginning at the end."""
RULES = TrafficRules(
    ordered=frozenset({"plain", "bank", "poison", "auto"}),
    unordered=frozenset({"mixed"}),
    settled=frozenset(GROUPS),
    auto_acked=frozenset({("auto", "once"), *((queue, AUDIT) for queue in OPTIONS)}),
    tokens=frozenset({"bank"}),
    poisoned=frozenset({"poison"}),
    lease_seconds=LEASE_SECONDS,
)
