"""Checks of limits and fan-ins. Each returns its violations as sentences."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from math import inf
from operator import attrgetter

from fairlane.verify.history import AckRecord, LaneName, RecordedHistory, UniqueRecord
from fairlane.verify.lease_checks import LEASE_TOLERANCE_SECONDS, LeaseKey, TrueClock, leases_of
from fairlane.verify.rules import TrafficRules

_Change = tuple[float, int, str]
"""A time, +1 when a message becomes held or -1 when it is released, and its id."""


def over_limit(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the moments at which a group held more messages than its limit allows.

    A message counts from the answer that delivered it until its lease may have ended for any reason.
    """
    limits = {**rules.running, **rules.running_per_key}
    changes = _held(history, rules, limits)
    found = []
    for (queue, group, key), moments in changes.items():
        held: set[str] = set()
        for _, change, id in sorted(moments):
            if change < 0:
                held.discard(id)
                continue
            held.add(id)
            if len(held) > limits[queue]:
                found.append(f"{queue}{key and '/'}{key}: {group} held {sorted(held)}; at most {limits[queue]} may run")
                break
    return found


def _held(
    history: RecordedHistory, rules: TrafficRules, limits: dict[str, int]
) -> dict[tuple[str, str, str], list[_Change]]:
    """Return when messages were certainly held, by queue, group, and key where the limit is for each key."""
    acked: dict[tuple[LaneName, str, str, str], float] = defaultdict(lambda: inf)
    for ack in history.acks:
        key = ack.lane, ack.group, ack.lease, ack.id
        acked[key] = min(acked[key], ack.began)
    cancelled: dict[tuple[LaneName, str, str], float] = defaultdict(lambda: inf)
    for ack in history.acks:
        if ack.status == "cancelled":
            cancelled[ack.lane, ack.group, ack.id] = min(cancelled[ack.lane, ack.group, ack.id], ack.began)
    clock, leases = TrueClock(history), leases_of(history)
    found: dict[tuple[str, str, str], list[_Change]] = defaultdict(list)
    for one in history.deliveries:
        queue = one.lane.queue
        if queue not in limits or not one.lease:
            continue
        until = min(
            one.began + rules.lease_seconds,
            acked[one.lane, one.group, one.lease, one.id],
            leases[LeaseKey(one.lane, one.group, one.lease)].may_end_at,
            cancelled[one.lane, one.group, one.id],
        )
        if one.ended < until and clock.covers(one.began, until):
            name = one.lane.partition.partition("!")[0] if queue in rules.running_per_key else ""
            found[queue, one.group, name] += [(one.ended, 1, one.id), (until, -1, one.id)]
    return found


def over_rate(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the periods in which more messages were delivered to a group than the rate of its queue allows."""
    clock, given = TrueClock(history), defaultdict(list)
    for one in history.deliveries:
        if one.lane.queue in rules.rates:
            given[one.lane.queue, one.group].append(one)
    found = []
    for (queue, group), deliveries in given.items():
        most, seconds = rules.rates[queue]
        deliveries.sort(key=attrgetter("began"))
        times = [one.began for one in deliveries]
        for at, began in enumerate(times):
            until = began + seconds - LEASE_TOLERANCE_SECONDS
            count = sum(one.ended <= until for one in deliveries[at : bisect_left(times, until)])
            if count > most and clock.covers(began, until):
                found.append(f"{queue}: {group} got {count} messages in {seconds:g} s; at most {most} may be delivered")
                break
    return found


def unique_overlaps(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the unique messages that were stored while another one with their key was surely not finished.

    Also returns the pushes that were refused because of a message that is not stored.
    """
    stored = {id for lane, ids in history.log.items() if lane.queue == rules.unique for id in ids}
    finished: dict[str, float] = {}
    for ack in history.acks:
        if ack.lane.queue == rules.unique and ack.status == "completed" and ack.fate != "refused":
            finished[ack.id] = min(finished.get(ack.id, inf), ack.began)
    received: dict[str, float] = {}
    for one in history.deliveries:
        if one.lane.queue == rules.unique:
            received[one.id] = min(received.get(one.id, inf), one.ended)
    found = [
        f"{rules.unique}: {one.id} was refused because of {one.holder}, which is not stored"
        for one in history.uniques
        if one.holder and one.holder not in stored
    ]
    by_key: dict[str, list[UniqueRecord]] = defaultdict(list)
    for push in history.uniques:
        if push.id in stored:
            by_key[push.key].append(push)
    for pushes in by_key.values():
        pushes.sort(key=attrgetter("began"))
        began = [push.began for push in pushes]
        known = [min(push.ended, received.get(push.id, inf)) for push in pushes]
        for push in pushes:
            later = range(bisect_right(began, push.ended), len(pushes)) if push.fate == "done" else ()
            if any(known[at] < finished.get(push.id, inf) for at in later):
                found.append(f"{rules.unique}: a message with {push.key} was stored before {push.id} was finished")
    return found


def payloads_in_clear(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the encrypted queues whose payloads are visible in SQL."""
    return [f"{queue} is encrypted, and SQL shows payloads in clear" for queue in history.in_clear]


def unique_count(history: RecordedHistory, rules: TrafficRules) -> int:
    return len(history.uniques)


def encrypted_count(history: RecordedHistory, rules: TrafficRules) -> int:
    return sum(push.lane.queue == rules.encrypted and push.fate in ("done", "deferred") for push in history.pushes)


def wrong_callbacks(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the fan-ins without one callback after the end of all parts, and those that were stored in part."""
    stored = Counter(id for ids in history.log.values() for id in ids)
    ends: dict[tuple[LaneName, str], list[AckRecord]] = defaultdict(list)
    for ack in history.acks:
        if ack.status in ("completed", "cancelled") and ack.fate != "refused":
            ends[ack.lane, ack.id].append(ack)
    first: dict[str, float] = {}
    for one in history.deliveries:
        if one.lane.queue == rules.fanned:
            first[one.id] = min(first.get(one.id, inf), one.ended)
    found = torn_fan_ins(history, rules)
    for fan_in in history.fan_ins:
        begun = any(stored[id] for _, id in fan_in.parts) or fan_in.fate == "done"
        callbacks = stored[fan_in.id]
        if callbacks != int(begun):
            found.append(f"fan-in {fan_in.id} ({fan_in.fate}) was called back {callbacks} times")
        for lane, id in fan_in.parts:
            acks = [ack.began for ack in ends[lane, id] if ack.group == fan_in.group]
            if first.get(fan_in.id, inf) < min(acks, default=inf):
                found.append(f"fan-in {fan_in.id} was called back before its part {id} had ended")
    return found


def torn_fan_ins(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the fan-ins that were stored without some of their parts."""
    stored = {id for ids in history.log.values() for id in ids}
    found = []
    for fan_in in history.fan_ins:
        there = sum(id in stored for _, id in fan_in.parts)
        if there not in (0, len(fan_in.parts)):
            found.append(f"fan-in {fan_in.id} ({fan_in.fate}) has {there} of its {len(fan_in.parts)} parts")
    return found


def fan_in_count(history: RecordedHistory, rules: TrafficRules) -> int:
    return len(history.fan_ins)


def limited_count(history: RecordedHistory, rules: TrafficRules) -> int:
    limits = rules.running.keys() | rules.running_per_key.keys() | rules.rates.keys()
    return sum(one.lane.queue in limits for one in history.deliveries)
