"""Explanations why a lane does not advance, as data and as a sentence; and the state of a lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fairlane.model.group import LaneState
from fairlane.model.moment import moment_or_none, second_text
from fairlane.model.queue import Paused, Queue, QueueOptions
from fairlane.store.contract.limits import Allowance
from fairlane.wire.pauses import Explained, LaneDetail, LaneStateName

Reason = Literal[
    "paused",
    "leased",
    "empty",
    "operations_pending",
    "parked",
    "blocked",
    "windowed",
    "delayed",
    "backing_off",
    "asleep",
    "sealed",
    "limited",
    "ready",
]


def explain(
    lane: LaneState,
    queue: Queue,
    paused: Paused,
    *,
    group: str,
    now: int,
    acks: int = 0,
    seals: bool = True,
    allowances: Sequence[Allowance] = (),
) -> Explained:
    """Explain what keeps the first unfinished message of a lane from the next pop.

    `acks` of the lane are not applied yet. `seals` is True if this broker has an encryption key. `allowances` has the
    limits of the group and of the lane's key.
    """
    options = queue.options
    leased_upto = lane.committed if lane.leased_until is None else lane.leased_until
    waiting = lane.head - max(lane.committed, leased_upto) - lane.skipped - lane.in_flight
    found = _paused(lane, paused, group) or _leased_or_empty(lane, waiting)
    if found is None and options.encryption_enabled and not seals:
        why = "The queue is encrypted and this broker has no encryption key: set the one of its messages."
        found = "sealed", why, None
    reason, sentence, until = found or _by_time(lane, options, now)
    limits = [one for one in allowances if one.limited_by is not None]
    if limits and reason in ("ready", "asleep"):
        limit = max(limits, key=lambda one: one.until or 0)
        if reason == "ready" or (until or 0) <= (limit.until or 0):
            reason, sentence, until = _limited(limit, options, options.key_of(lane.name))
    return Explained(
        queue=queue.name,
        partition=lane.name,
        group=group,
        reason=reason,
        sentence=f"{sentence} {_waiting_acks(acks)}" if acks else sentence,
        until=moment_or_none(until),
        waiting=waiting,
        position=lane.committed,
        head=lane.head,
        attempts=lane.attempts,
        attempts_max=_attempts_max(lane, options),
        error=lane.error,
        oldest_at=moment_or_none(lane.oldest_at),
        lease_ends_at=moment_or_none(lane.lease_ends_at),
        leased=leased_upto - lane.committed,
        next_try_at=moment_or_none(lane.ready_at),
        operations=lane.operations,
        acks=acks,
        dead_letters=lane.dead,
        expired=lane.expired,
    )


def _waiting_acks(acks: int) -> str:
    if acks == 1:
        return "1 ack of it is accepted and waits to be applied."
    return f"{acks} acks of it are accepted and wait to be applied."


_STATES: dict[str, LaneStateName] = {
    "paused": "paused",
    "parked": "parked",
    "blocked": "blocked",
    "leased": "leased",
    "empty": "finished",
    "windowed": "delayed",
    "delayed": "delayed",
    "backing_off": "failed",
}
"""State of a lane by the reason why it does not advance. The default is waiting."""


def shown(lane: LaneState, queue: Queue, paused: Paused, *, group: str, now: int) -> LaneDetail:
    """Return a lane with its state."""
    why = explain(lane, queue, paused, group=group, now=now)
    state = _STATES.get(why.reason, "failed" if lane.attempts else "waiting")
    return LaneDetail(
        partition=lane.name,
        partition_id=str(lane.partition),
        state=state,
        start=lane.start,
        committed=lane.committed,
        leased_to=lane.committed + why.leased,
        head=lane.head,
        waiting=why.waiting,
        failures=lane.attempts,
        error=lane.error,
        next_try_at=why.next_try_at,
        lease_ends_at=moment_or_none(lane.lease_ends_at),
        oldest_at=moment_or_none(lane.oldest_at),
        dead_letters=lane.dead,
    )


_Found = tuple[Reason, str, int | None]


def _paused(lane: LaneState, paused: Paused, group: str) -> _Found | None:
    since = (
        ("The queue", paused.queue_at),
        (f"The group {group!r}", paused.groups.get(group)),
        (f"The partition {lane.name!r}", paused.partitions.get(lane.name)),
    )
    for what, at in since:
        if at is not None:
            return "paused", f"{what} has been paused since {_moment(at)}; resume it.", None
    return None


def _leased_or_empty(lane: LaneState, waiting: int) -> _Found | None:
    if lane.leased_until is not None and lane.lease_ends_at is not None:
        count = _count(lane.leased_until - lane.committed)
        return "leased", f"A consumer holds {count} until {_moment(lane.lease_ends_at)}.", lane.lease_ends_at
    if waiting <= 0 and lane.in_flight:
        return "leased", f"Consumers hold {_count(lane.in_flight)}, and there is nothing else to read.", lane.ready_at
    if waiting <= 0 and lane.operations:
        count = "1 push waits" if lane.operations == 1 else f"{lane.operations} pushes wait"
        return "operations_pending", f"There is nothing to read: {count} as an operation until it is applied.", None
    if waiting <= 0:
        return "empty", "There is nothing to read.", None
    tried = f"message {lane.committed} failed {_times(lane.attempts)} with {lane.error!r:.200}"
    if lane.stopped == "parked":
        why = f"with its first message: {tried}" if lane.attempts else "by an operator"
        return "parked", f"The lane was set aside {why}; resume it.", None
    if lane.stopped == "blocked":
        return "blocked", f"The lane is blocked: {tried}; resume it, or delete the message.", None
    return None


def _by_time(lane: LaneState, options: QueueOptions, now: int) -> _Found:
    if options.window_seconds and (at := lane.last_at + options.window_seconds * 1_000_000) > now:
        return "windowed", f"Messages still arrive; the lane is read if none arrives until {_moment(at)}.", at
    oldest_at = lane.oldest_at or 0
    if options.delay_seconds and (at := oldest_at + options.delay_seconds * 1_000_000) > now:
        return "delayed", f"Message {lane.committed} is delayed until {_moment(at)}.", at
    if lane.ready_at is not None and lane.ready_at > now:
        at = lane.ready_at
        if not lane.attempts and oldest_at >= at:
            return "asleep", f"The store's clock was ahead, at {_moment(at)}; the lane is woken within seconds.", at
        if not lane.attempts:
            sealed = ", or a broker lacks its encryption key" if options.encryption_enabled else ""
            return "asleep", f"A consumer gave message {lane.committed} back until {_moment(at)}{sealed}.", at
        tries = f"attempt {lane.attempts} of {_attempts_max(lane, options)}"
        return "backing_off", f"Backing off until {_moment(at)} after {tries} failed with {lane.error!r:.200}.", at
    waiting = lane.head - lane.committed - lane.skipped - lane.in_flight
    return (
        "ready",
        f"Nothing holds the lane: {_count(waiting)} {'is' if waiting == 1 else 'are'} ready for the next pop.",
        None,
    )


def _limited(allowance: Allowance, options: QueueOptions, key: str) -> _Found:
    until, limit = allowance.until, allowance.limited_by
    end = "" if until is None else f" until {_moment(until)}"
    if limit == "rate":
        return "limited", f"The rate of the queue, {options.rate}, allows its group no message{end}.", until
    if limit == "rate_per_key":
        return "limited", f"The rate_per_key, {options.rate_per_key}, allows no message of key {key!r}{end}.", until
    of_key = f" of key {key!r}" if limit == "max_running_per_key" else ""
    why = f"The group holds {_count(allowance.running or 0)}{of_key}, as many as {limit} allows"
    return "limited", f"{why}; the first of these leases ends at {_moment(until or 0)}, or with its ack.", until


def _attempts_max(lane: LaneState, options: QueueOptions) -> int:
    return (options.retry_limit if lane.retry_limit is None else lane.retry_limit) + 1


def _count(messages: int) -> str:
    return "1 message" if messages == 1 else f"{messages} messages"


def _times(attempts: int) -> str:
    return "once," if attempts == 1 else f"{attempts} times, at last"


def _moment(micros: int) -> str:
    """Return a point in time for a sentence, to the second."""
    return f"{second_text(micros // 1_000_000).replace('T', ' ')} UTC"
