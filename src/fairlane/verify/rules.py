"""The queues of a run, and the promises that hold for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    retry_limit: int = -1
    """Retries of a failing message in these queues before it is a dead letter. -1 if that is not known."""
    running: Mapping[str, int] = field(default_factory=dict)
    """Limit of the messages that a group of a queue holds at once."""
    running_per_key: Mapping[str, int] = field(default_factory=dict)
    """The same for the messages of each key, which is the partition without its priority."""
    rates: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Limit of the messages that are delivered to a group of a queue in any period of this many seconds."""
    unique: str = ""
    """Queue of unique messages: at most one with a key waits or runs at a time. Empty if there is none."""
    encrypted: str = ""
    """Queue whose payloads are encrypted. Empty if there is none."""
    deleting: frozenset[str] = frozenset()
    """Queues whose messages retention deletes once every group has finished them."""
    fanned: str = ""
    """Queue of the callbacks of fan-ins. Empty if there are none."""
    lease_seconds: float = 0.0
    """Lease time of every queue. 0 if it is not known."""


LEASE_SECONDS = 3
RETRY_LIMIT = 2
RUNNING_MAX = 3
RUNNING_PER_KEY_MAX = 2
RATE_MAX, RATE_SECONDS = 15, 3
OPTIONS: Mapping[str, dict[str, Any]] = {
    "plain": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "bank": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "poison": {"leaseTime": LEASE_SECONDS, "retryLimit": RETRY_LIMIT},
    "auto": {"leaseTime": LEASE_SECONDS},
    "mixed": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000, "ordering": "unordered"},
    "later": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "few": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000, "maxRunning": RUNNING_MAX},
    "keyed": {
        "leaseTime": LEASE_SECONDS,
        "retryLimit": 1000,
        "ordering": "unordered",
        "maxRunningPerKey": RUNNING_PER_KEY_MAX,
    },
    "parts": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "ends": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "staged": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "single": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "paced": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000, "rate": f"{RATE_MAX}/{RATE_SECONDS}s"},
    "sealed": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000, "encryptionEnabled": True},
    "brief": {
        "leaseTime": LEASE_SECONDS,
        "retryLimit": 1000,
        "retentionEnabled": True,
        "completedRetentionSeconds": 1,
    },
}
"""The options of each queue, by its name without the prefix."""
BESIDE = {"ends": "parts"}
"""Queues in the cell of another one, because transactions push to both."""
PARTITIONS = {"plain": 6, "bank": 4, "poison": 3, "auto": 3, "mixed": 2, "later": 2}
PARTITIONS |= {"few": 3, "keyed": 2, "parts": 3, "ends": 2, "staged": 3, "brief": 2}
PARTITIONS |= {"single": 3, "paced": 2, "sealed": 2}
TOKENS = 12
GROUPS = [("plain", "billing"), ("plain", "search"), ("bank", "movers"), ("poison", "tasters"), ("mixed", "any")]
GROUPS += [("later", "any"), ("few", "crew"), ("keyed", "crew"), ("parts", "hands"), ("ends", "hands")]
GROUPS += [("staged", "any"), ("brief", "any"), ("single", "any"), ("paced", "crew"), ("sealed", "any")]
LIMITED = ("few", "keyed", "paced")
SLOW = (*LIMITED, "poison", "sealed")
"""Queues with fewer messages, because their consumers are slow."""
NO_LIMITS = {"maxRunning": 0, "maxRunningPerKey": 0, "rate": ""}
AUDIT = "audit"
"""The group that reads every partition from its beginning at the end."""
RULES = TrafficRules(
    ordered=frozenset(
        {"plain", "bank", "poison", "auto", "few", "parts", "ends", "staged", "single", "paced", "sealed"}
    ),
    unordered=frozenset({"mixed", "keyed"}),
    settled=frozenset(GROUPS),
    auto_acked=frozenset({("auto", "once"), *((queue, AUDIT) for queue in OPTIONS)}),
    tokens=frozenset({"bank"}),
    poisoned=frozenset({"poison"}),
    retry_limit=RETRY_LIMIT,
    running={"few": RUNNING_MAX},
    running_per_key={"keyed": RUNNING_PER_KEY_MAX},
    rates={"paced": (RATE_MAX, RATE_SECONDS)},
    unique="single",
    encrypted="sealed",
    deleting=frozenset({"brief"}),
    fanned="ends",
    lease_seconds=LEASE_SECONDS,
)
