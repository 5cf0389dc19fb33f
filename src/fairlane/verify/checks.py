"""The promises of docs/guarantees.md as checks of a history. Each returns its violations as sentences."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from math import inf
from operator import itemgetter

from fairlane.verify.history import DeliveryRecord, LaneName, PushRecord, RecordedHistory
from fairlane.verify.rules import TrafficRules


def _stored(history: RecordedHistory) -> Counter[tuple[str, str]]:
    return Counter((lane.queue, id) for lane, ids in history.log.items() for id in ids)


def lost(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the accepted messages that are not in the log."""
    stored = _stored(history)
    return [
        f"{push.lane.queue}: {push.id} was accepted ({push.fate}) and lost"
        for push in history.pushes
        if push.fate in ("done", "deferred")
        and push.lane.queue not in rules.deleting
        and not stored[push.lane.queue, push.id]
    ]


def vanished(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the accepted messages that retention deleted, or a fault lost, before anybody had acked them."""
    acked = {
        (ack.lane.queue, ack.id)
        for ack in history.acks
        if ack.status in ("completed", "cancelled") and ack.fate != "refused"
    }
    return [
        f"{push.lane.queue}: {push.id} was accepted ({push.fate}) and is gone, and nobody acked it"
        for push in history.pushes
        if push.lane.queue in rules.deleting
        and push.fate in ("done", "deferred")
        and (push.lane.queue, push.id) not in acked
    ]


def doubled(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the messages that are in the log twice."""
    return [f"{queue}: {id} was stored {count} times" for (queue, id), count in _stored(history).items() if count > 1]


def invented(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the messages of the log that no client pushed, or whose push was refused."""
    found: list[str] = []
    fates: dict[tuple[str, str], set[str]] = defaultdict(set)
    for push in history.pushes:
        fates[push.lane.queue, push.id].add(push.fate)
    moved = {ack.pushed for ack in history.acks if ack.pushed} | {one.id for one in history.fan_ins}
    for queue, id in _stored(history):
        known = fates.get((queue, id))
        if known == {"refused"}:
            found.append(f"{queue}: {id} was refused and stored")
        elif known is None and id not in moved and id not in history.copies:
            found.append(f"{queue}: {id} is in the log and nobody pushed it")
    return found


def out_of_order(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the pushes that overtook one that had been accepted before they began.

    A push in a journal precedes only those that its broker accepts later.
    """
    found = []
    lanes: dict[LaneName, list[PushRecord]] = defaultdict(list)
    for push in history.pushes:
        if push.lane.queue in rules.ordered:
            lanes[push.lane].append(push)
    for lane, pushes in lanes.items():
        positions = {id: position for position, id in enumerate(history.log.get(lane, ()))}
        accepted: list[tuple[float, int, PushRecord]] = []
        last: dict[
            int | None, tuple[int, PushRecord | None]
        ] = {}  # the highest position so far, by broker; None is any
        for number, push in enumerate(sorted(pushes, key=lambda push: push.began)):
            while accepted and accepted[0][0] < push.began:
                earlier = heapq.heappop(accepted)[2]
                scope = earlier.broker if earlier.in_journal else None
                if positions.get(earlier.id, -1) > last.get(scope, (-1, None))[0]:
                    last[scope] = positions.get(earlier.id, -1), earlier
            if push.id not in positions:
                continue
            scopes = (None,) if push.roamed else (None, push.broker)
            highest, before = max((last.get(scope, (-1, None)) for scope in scopes), key=itemgetter(0))
            if before is not None and highest > positions[push.id]:
                found.append(f"{lane}: {push.id} was pushed after {before.id} was accepted, and is before it")
            if push.fate in ("done", "deferred"):
                heapq.heappush(accepted, (push.ended, number, push))
    return found


def _answers(
    history: RecordedHistory, of: Iterable[tuple[str, str]]
) -> dict[tuple[LaneName, str], list[list[DeliveryRecord]]]:
    """Return the deliveries of these queues and groups by lane and group, as one list per answer."""
    wanted, answers = frozenset(of), defaultdict(list)
    for one in history.deliveries:
        if (one.lane.queue, one.group) in wanted:
            answers[one.lane, one.group, one.lease, one.began].append(one)
    grouped = defaultdict(list)
    for (lane, group, _, _), messages in sorted(answers.items(), key=lambda pair: pair[0][3]):
        grouped[lane, group].append(messages)
    return grouped


def skipped(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the messages that a group did not get, or got before those ahead of them were finished."""
    found = []
    finished: dict[tuple[LaneName, str, str], float] = {}
    for ack in history.acks:
        if ack.status in ("completed", "cancelled") and ack.fate != "refused":
            key = ack.lane, ack.group, ack.id
            finished[key] = min(finished.get(key, inf), ack.began)
    for letter in history.dead:
        for queue, group in rules.settled:
            if queue == letter.lane.queue:
                finished[letter.lane, group, letter.id] = -inf
    for queue, group in sorted(rules.settled):
        for lane, ids in history.log.items():
            if lane.queue == queue:
                found += [
                    f"{lane}: {group} is done with the partition, and nobody acked {id}"
                    for id in ids
                    if (lane, group, id) not in finished
                ]
    ordered = [(queue, group) for queue, group in rules.settled if queue in rules.ordered]
    for (lane, group), answers in _answers(history, ordered).items():
        ids = history.log.get(lane, [])
        times = [finished.get((lane, group, id), inf) for id in ids]
        for messages in answers:
            positions = [one.position for one in messages]
            if positions != sorted(set(positions)):
                found.append(f"{lane}: {group} got positions {positions} in one answer")
            given = set(positions)
            for position in range(min(max(positions), len(ids))):
                if position not in given and times[position] > messages[-1].ended:
                    found.append(f"{lane}: {group} got {messages[-1].id} before {ids[position]} was finished")
                    break
            for one in messages:
                if one.position >= len(ids) or ids[one.position] != one.id:
                    found.append(f"{lane}: {group} got {one.id} at {one.position}, where the log has another")
    return found


def delivered_after_ack(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the messages that a group got again after their ack had been answered 200."""
    done: dict[tuple[LaneName, str, str], float] = {}
    for ack in history.acks:
        finished = ack.status in ("completed", "cancelled") and ack.fate == "done"
        if finished and (ack.lane.queue, ack.group) in rules.settled:
            key = ack.lane, ack.group, ack.id
            done[key] = min(done.get(key, inf), ack.ended)
    return [
        f"{one.lane}: {one.group} got {one.id} again after it was finished"
        for one in history.deliveries
        if one.began > done.get((one.lane, one.group, one.id), inf)
    ]


def completed_twice(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the messages that two leases of a group completed."""
    leases: dict[tuple[LaneName, str, str], set[str]] = defaultdict(set)
    for ack in history.acks:
        if ack.status == "completed" and ack.fate == "done" and (ack.lane.queue, ack.group) in rules.settled:
            leases[ack.lane, ack.group, ack.id].add(ack.lease)
    return [
        f"{lane}: {group} completed {id} under {len(held)} leases"
        for (lane, group, id), held in leases.items()
        if len(held) > 1
    ]


def delivered_twice_by_auto_ack(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the messages that auto-ack pops delivered twice, or delivered after a later message of an ordered lane."""
    found = []
    for (lane, group), answers in _answers(history, rules.auto_acked).items():
        counts = Counter(one.id for messages in answers for one in messages)
        found += [f"{lane}: {group} got {id} {count} times by auto-ack" for id, count in counts.items() if count > 1]
        if lane.queue not in rules.ordered:
            continue
        for before, after in pairwise(answers):
            if before[-1].ended < after[0].began and before[-1].position > after[0].position:
                found.append(f"{lane}: {group} got {after[0].id} after {before[-1].id}")
    return found


def torn_transactions(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the tokens with a lost or doubled hop, and the transactions that were applied in part."""
    found = []
    stored = Counter(id for lane, ids in history.log.items() if lane.queue in rules.tokens for id in ids)
    hops: dict[str, list[int]] = defaultdict(list)
    for id, count in stored.items():
        token, _, hop = id.rpartition("-")
        hops[token] += [int(hop)] * count
    for token, made in hops.items():
        if sorted(made) != list(range(len(made))):
            found.append(f"{token} has the hops {sorted(made)}")
    for ack in history.acks:
        if ack.pushed is not None:
            if ack.fate == "done" and not stored[ack.pushed]:
                found.append(f"the transaction that completed {ack.id} was applied, and its {ack.pushed} is lost")
            if ack.fate == "refused" and stored[ack.pushed] and not _moved_by_another(history, ack.pushed):
                found.append(
                    f"the transaction that was to complete {ack.id} was refused, and its {ack.pushed} is there"
                )
    return found


def lost_tokens(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the tokens whose last hop is finished, although nothing but transactions without a result finished it."""
    stored = {id for lane, ids in history.log.items() if lane.queue in rules.tokens for id in ids}
    finished: dict[str, list[str | None]] = defaultdict(list)
    for ack in history.acks:
        if ack.lane.queue in rules.tokens and ack.status == "completed" and ack.fate != "refused":
            finished[ack.id].append(ack.pushed)
    return [
        f"{id} was completed by a transaction whose {pushes[0]} is lost"
        for id, pushes in finished.items()
        if id in stored and not any(pushed is None or pushed in stored for pushed in pushes)
    ]


def _moved_by_another(history: RecordedHistory, id: str) -> bool:
    return any(ack.pushed == id and ack.fate != "refused" for ack in history.acks)


def wrong_letters(history: RecordedHistory, rules: TrafficRules) -> list[str]:
    """Return the poisonous messages that are not one dead letter, and the replays that stored not one message."""
    found = []
    letters = Counter(letter.id for letter in history.dead)
    found += [f"{id} is {count} dead letters" for id, count in letters.items() if count > 1]
    found += [
        f"{letter.lane}: {letter.id} is a dead letter after {letter.attempts} attempts of {rules.retry_limit + 1}"
        for letter in history.dead
        if rules.retry_limit >= 0 and letter.attempts != rules.retry_limit + 1
    ]
    completed = {(ack.lane, ack.id) for ack in history.acks if ack.status == "completed" and ack.fate == "done"}
    found += [
        f"{letter.lane}: {letter.id} is a dead letter and completed"
        for letter in history.dead
        if (letter.lane, letter.id) in completed
    ]
    for lane, ids in history.log.items():
        if lane.queue in rules.poisoned:
            found += [f"{id} is no dead letter" for id in ids if id.startswith("poison") and not letters[id]]
    copies = Counter(history.copies.values())
    for id, fate in history.replays.items():
        if copies[id] > 1 or (fate == "done" and copies[id] == 0):
            found.append(f"{id} was replayed ({fate}) and stored {copies[id]} times")
    found += [f"{id} was stored again and nobody replayed it" for id in copies if id not in history.replays]
    return found
