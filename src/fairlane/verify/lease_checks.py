"""Checks of leases, payloads and counts. Each returns its violations as sentences."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from fairlane.verify.history import NEVER, AckRecord, LaneName, RecordedHistory
from fairlane.verify.rules import TrafficRules

CLOCK_FAULTS = frozenset({"step_clock_of_broker", "step_clock_of_server"})
"""Faults after which a lease may end early or late. It still has one holder."""
CLOCK_SECONDS = 10.0
"""Time after a step of the clock in which the end of a lease is not compared with the true clock."""
LEASE_TOLERANCE_SECONDS = 0.05


class LeaseKey(NamedTuple):
    """A lease of one lane."""

    lane: LaneName
    group: str
    lease: str


@dataclass
class LeaseSpan:
    """The lifetime of a lease, from its pop to the first request that could have ended it."""

    key: LeaseKey
    began: float
    ended: float
    ids: set[str] = field(default_factory=set)
    may_end_at: float = NEVER
    """Beginning of the first request that may have ended the lease before its time."""
    released_at: float = NEVER


def leases_of(history: RecordedHistory) -> dict[LeaseKey, LeaseSpan]:
    """Return every lease that an answer named, with what its holder did."""
    found: dict[LeaseKey, LeaseSpan] = {}
    for one in history.deliveries:
        if not one.lease:
            continue
        key = LeaseKey(one.lane, one.group, one.lease)
        span = found.setdefault(key, LeaseSpan(key, one.began, one.ended))
        span.ids.add(one.id)
    acked: dict[LeaseKey, set[str]] = defaultdict(set)
    released: dict[str, float] = {}
    for ack in sorted(history.acks, key=lambda ack: ack.began):
        key = LeaseKey(ack.lane, ack.group, ack.lease)
        held = found.get(key)
        if ack.status == "released":
            released.setdefault(ack.lease, ack.began)
        elif held is not None and ack.fate != "refused":
            acked[key].add(ack.id)
            if ack.status != "completed" or acked[key] >= held.ids:
                held.may_end_at = min(held.may_end_at, ack.began)
    for span in found.values():  # a release ends the lease in every lane that it spans
        span.released_at = released.get(span.key.lease, NEVER)
        span.may_end_at = min(span.may_end_at, span.released_at)
    return found


class TrueClock:
    """The times in which the clocks of the store were not stepped."""

    def __init__(self, history: RecordedHistory) -> None:
        self._wrong = [(span.began, span.ended + CLOCK_SECONDS) for span in history.faults if span.name in CLOCK_FAULTS]

    def covers(self, began: float, ended: float) -> bool:
        return not any(began < to and since < ended for since, to in self._wrong)


def two_holders(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the leases of ordered lanes that began before the lease before them had ended or run out."""
    clock, lanes = TrueClock(history), defaultdict(list)
    for span in leases_of(history).values():
        if span.key.lane.queue not in rules.unordered and rules.lease_seconds:
            lanes[span.key.lane, span.key.group].append(span)
    found = []
    for (lane, group), spans in lanes.items():
        for before, after in pairwise(sorted(spans, key=lambda one: one.began)):
            runs_out_at = before.began + rules.lease_seconds - LEASE_TOLERANCE_SECONDS
            early = after.ended < min(runs_out_at, before.may_end_at)
            if early and after.began > before.ended and clock.covers(before.began, after.ended):
                found.append(
                    f"{lane}: {group} got the lease {after.key.lease} {after.ended - before.began:.2f} s after "
                    f"{before.key.lease}, which nobody had ended"
                )
    return found


def zombie_acks(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the acks of ordered lanes that were applied after a later lease was given."""
    later: dict[tuple[LaneName, str], list[tuple[float, str]]] = defaultdict(list)
    spans = leases_of(history)
    for span in spans.values():
        if span.key.lane.queue not in rules.unordered:
            later[span.key.lane, span.key.group].append((span.ended, span.key.lease))
    for deliveries in later.values():
        deliveries.sort()
    found = []
    for ack in history.acks:
        held = spans.get(LeaseKey(ack.lane, ack.group, ack.lease))
        if held is None or ack.fate != "done" or ack.status == "released" or ack.lane.queue in rules.unordered:
            continue
        deliveries = later[ack.lane, ack.group]
        at = bisect_left(deliveries, (ack.began, ""))
        for ended, lease in reversed(deliveries[:at]):
            if lease == ack.lease or ended <= held.ended:
                break
            if spans[LeaseKey(ack.lane, ack.group, lease)].began > held.ended:
                found.append(
                    f"{ack.lane}: {ack.group} applied an ack of {ack.id} under {ack.lease}, after {lease} was given"
                )
                break
    return found


def redelivered_without_cause(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the messages that came again without a nack, a release, or the end of their lease."""
    clock = TrueClock(history)
    spans = leases_of(history)
    given: dict[tuple[LaneName, str, str], list[LeaseSpan]] = defaultdict(list)
    for span in spans.values():
        for id in span.ids:
            given[span.key.lane, span.key.group, id].append(span)
    nacked: dict[tuple[LaneName, str, str], list[AckRecord]] = defaultdict(list)
    for ack in history.acks:
        if ack.status != "completed":
            nacked[ack.lane, ack.group, ack.id].append(ack)
    found = []
    for (lane, group, id), leases in given.items():
        if (lane.queue, group) not in rules.settled or not rules.lease_seconds:
            continue
        for before, after in _in_order(leases):
            seconds = after.ended - before.began
            # The nack of one message of an unordered queue does not end the lease of the others.
            may_end_at = before.released_at if lane.queue in rules.unordered else before.may_end_at
            nacks = (ack.began for ack in nacked[lane, group, id] if ack.lease == before.key.lease)
            explained = min(may_end_at, *nacks, NEVER) < after.ended
            early = seconds < rules.lease_seconds - LEASE_TOLERANCE_SECONDS
            if early and not explained and clock.covers(before.began, after.ended):
                found.append(f"{lane}: {group} got {id} again {seconds:.2f} s later without a cause")
    return found


def _in_order(spans: list[LeaseSpan]) -> Iterator[tuple[LeaseSpan, LeaseSpan]]:
    ordered = sorted(spans, key=lambda one: one.began)
    return ((before, after) for before, after in pairwise(ordered) if after.began > before.ended)


def changed_payloads(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the messages whose payload differs from what was pushed."""
    found = [
        f"{one.lane}: {one.group} got {one.id} with another payload" for one in history.deliveries if not one.intact
    ]
    return found + history.corrupt


def counts_agree(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the lanes whose messages the history, SQL and the API count differently."""
    found = []
    for one in history.conserved:
        for what, counts in (("stored", one.stored), ("unfinished", one.unfinished), ("dead", one.dead)):
            if len(set(counts.values())) > 1:
                shown = ", ".join(f"{source}: {count}" for source, count in counts.items())
                found.append(f"{one.lane}: {one.group} counts {what} messages differently ({shown})")
    return found
