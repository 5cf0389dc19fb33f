"""The promises G1 to G16: what each says, the checks that could refute it, and its number of trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fairlane.verify import checks, feature_checks, lease_checks
from fairlane.verify.history import RecordedHistory
from fairlane.verify.rules import TrafficRules

SHOWN_MAX = 20
"""Largest number of violations of one kind that are reported in full."""
Check = Callable[[RecordedHistory, TrafficRules], list[str]]


class PromiseKind(NamedTuple):
    """A promise. A trial is one event that could have broken it."""

    name: str
    sentence: str
    trial: str
    checks: Sequence[Check]
    trials: Callable[[RecordedHistory, TrafficRules], int]


class PromiseResult(NamedTuple):
    """The result of a run for one promise."""

    promise: PromiseKind
    trials: int
    violations: list[str]


def _accepted(history: RecordedHistory, rules: TrafficRules) -> int:
    return sum(push.fate in ("done", "deferred") for push in history.pushes)


def _pushes(history: RecordedHistory, rules: TrafficRules) -> int:
    return len(history.pushes)


def _deliveries(history: RecordedHistory, rules: TrafficRules) -> int:
    return len(history.deliveries)


def _ordered_deliveries(history: RecordedHistory, rules: TrafficRules) -> int:
    return sum(one.lane.queue in rules.ordered for one in history.deliveries)


def _acks(history: RecordedHistory, rules: TrafficRules) -> int:
    return len(history.acks)


def _moves(history: RecordedHistory, rules: TrafficRules) -> int:
    return sum(ack.pushed is not None for ack in history.acks)


def _lanes(history: RecordedHistory, rules: TrafficRules) -> int:
    return len(history.conserved)


def _letters(history: RecordedHistory, rules: TrafficRules) -> int:
    return len(history.dead)


def _faults(history: RecordedHistory, rules: TrafficRules) -> int:
    return len(history.faults)


def _disk_faults(history: RecordedHistory, rules: TrafficRules) -> int:
    return sum("disk" in span.name for span in history.faults)


def _odd(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    return history.odd_answers


def _stuck(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    return history.stuck


PROMISES = (
    PromiseKind(
        "G1 durable", "An accepted push is not lost.", "accepted pushes", [checks.lost, checks.vanished], _accepted
    ),
    PromiseKind(
        "G2 intact",
        "Only what was pushed is delivered, byte for byte.",
        "deliveries",
        [checks.invented, lease_checks.changed_payloads],
        _deliveries,
    ),
    PromiseKind(
        "G3 stored once", "A message is stored once, however often it is sent.", "pushes", [checks.doubled], _pushes
    ),
    PromiseKind(
        "G4 one order",
        "A push that was accepted before another began comes before it.",
        "accepted pushes",
        [checks.out_of_order],
        _accepted,
    ),
    PromiseKind(
        "G5 no skips",
        "A group gets every message, in order.",
        "ordered deliveries",
        [checks.skipped],
        _ordered_deliveries,
    ),
    PromiseKind(
        "G6 one holder",
        "A lane has one lease at a time, and an old lease has no effect.",
        "acks",
        [lease_checks.two_holders, lease_checks.zombie_acks, checks.completed_twice],
        _acks,
    ),
    PromiseKind(
        "G7 explained repeats",
        "A message comes again only after a nack, a release, or a lost lease.",
        "deliveries",
        [checks.delivered_after_ack, checks.delivered_twice_by_auto_ack, lease_checks.redelivered_without_cause],
        _deliveries,
    ),
    PromiseKind(
        "G8 all or nothing",
        "A transaction is applied completely, or not at all.",
        "transactions",
        [checks.torn_transactions, checks.lost_tokens],
        _moves,
    ),
    PromiseKind(
        "G9 conserved",
        "The history, SQL and the API count the same messages.",
        "lanes",
        [lease_checks.counts_agree],
        _lanes,
    ),
    PromiseKind(
        "G10 dead letters",
        "A failing message becomes a dead letter once, and is never completed as well.",
        "dead letters",
        [checks.wrong_letters],
        _letters,
    ),
    PromiseKind("G11 recovers", "After the last fault everything is delivered.", "faults", [_stuck], _faults),
    PromiseKind(
        "G12 loud",
        "A disk that is full or fails is never answered with success, and no fault with an error of ours.",
        "full or failing disks",
        [_odd],
        _disk_faults,
    ),
    PromiseKind(
        "G13 limits",
        "A group never holds or gets more messages than its limits allow.",
        "deliveries",
        [feature_checks.over_limit, feature_checks.over_rate],
        feature_checks.limited_count,
    ),
    PromiseKind(
        "G14 fan-ins",
        "The callback of a fan-in is pushed once, after the end of every part.",
        "fan-ins",
        [feature_checks.wrong_callbacks],
        feature_checks.fan_in_count,
    ),
    PromiseKind(
        "G15 unique",
        "Of the messages with one unique key, one waits or runs at a time.",
        "unique pushes",
        [feature_checks.unique_overlaps],
        feature_checks.unique_count,
    ),
    PromiseKind(
        "G16 encrypted",
        "Payloads of an encrypted queue are not in its store in clear.",
        "accepted pushes",
        [feature_checks.payloads_in_clear],
        feature_checks.encrypted_count,
    ),
)


def check_promises(history: RecordedHistory, rules: TrafficRules) -> list[PromiseResult]:
    """Check every promise, and return the violations, the first of each kind."""
    results = []
    for promise in PROMISES:
        broken = [violation for check in promise.checks for violation in check(history, rules)]
        shown = broken[:SHOWN_MAX]
        if len(broken) > SHOWN_MAX:
            shown.append(f"and {len(broken) - SHOWN_MAX} more")
        results.append(PromiseResult(promise, promise.trials(history, rules), shown))
    return results


def violations(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return every broken promise of a history, the first of each kind."""
    return [violation for result in check_promises(history, rules) for violation in result.violations]
