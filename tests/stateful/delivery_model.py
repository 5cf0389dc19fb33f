"""A model of times, pauses and fates of messages in plain lists, without storage and concurrency.

It is written from the documentation alone. It covers unordered queues, delays, expiry, retention, conflation,
schedules, pauses and other verbs of operators; `model` covers leases, order and ids. Leases do not expire here. Times
are microseconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

SECOND = 1_000_000
OPEN = ""


class Message(NamedTuple):
    id: str
    tx: str
    created_at: int


class Waiting(NamedTuple):
    """A scheduled message."""

    due_at: int
    id: str
    partition: str
    tx: str


@dataclass
class Lane:
    """One partition as one group sees it: the fate of each position, OPEN if it has none yet."""

    log: list[Message]
    conflates: bool = False
    fates: dict[int, str] = field(default_factory=dict)
    leased: dict[int, str] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    dead: int = 0
    """Number of messages given up so far, also of `expired` ones. After a seek back they may be given up again."""
    expired: int = 0

    def fate(self, at: int) -> str:
        return self.fates.get(at, OPEN)

    def open(self) -> list[int]:
        return [at for at in range(len(self.log)) if self.fate(at) == OPEN]

    def committed(self) -> int:
        return min(self.open(), default=len(self.log))

    def count(self, *fates: str) -> int:
        return sum(fate in fates for fate in self.fates.values())

    def end(self, at: int, fate: str) -> None:
        self.fates[at] = fate
        self.dead += fate == "dead"
        self.expired += fate == "expired"

    def expire(self, options: dict[str, int], now: int) -> None:
        """Expire old messages from the cursor on."""
        for at in self.too_old(options, now):
            self.end(at, "expired" if options["drop"] else "dead")

    def too_old(self, options: dict[str, int], now: int) -> list[int]:
        """Return the expired positions before the first one that is not expired."""
        age = options["ttl_seconds"] * SECOND
        return list(itertools.takewhile(lambda at: age and now - self.log[at].created_at >= age, self.open()))

    def visible(self, options: dict[str, int], now: int) -> list[int]:
        """Return open positions that are old enough, up to the first that is not."""
        found = []
        for at in self.open():
            if now - self.log[at].created_at < options["delay_seconds"] * SECOND:
                break
            found.append(at)
        return found

    def pop(self, lease: str, batch: int, options: dict[str, int], now: int) -> list[int]:
        if options["unordered"]:
            got = [at for at in self.open() if at not in self.leased][:batch]
        elif self.leased:
            got = []
        else:
            if self.conflates:
                for at in self.visible(options, now)[:-1]:
                    self.fates[at] = "passed over"
            self.expire(options, now)
            got = self.visible(options, now)[: 1 if self.conflates else batch]
        self.leased.update(dict.fromkeys(got, lease))
        return got

    def finish(self, positions: list[int]) -> None:
        for at in positions:
            self.fates[at] = "acked"
            del self.leased[at]

    def fail(self, at: int, options: dict[str, int]) -> bool:
        """Fail one message of a lease. In an ordered lane this ends the lease. Returns True if the message is dead."""
        self.tries[at] = self.tries.get(at, 0) + 1
        if options["unordered"]:
            del self.leased[at]
        else:
            self.leased.clear()
        if self.tries[at] > options["retry_limit"]:
            self.end(at, "dead")
        return self.fate(at) == "dead"

    def forget_below(self, start: int) -> None:
        for at in range(start):
            if self.fate(at) == OPEN:
                self.end(at, "expired")
                self.leased.pop(at, None)

    def seek(self, to: int) -> None:
        """Move the cursor. All messages behind it are open again, and leases and attempts are dropped."""
        self.leased.clear()
        self.tries.clear()
        for at in range(len(self.log)):
            if at >= to:
                self.fates.pop(at, None)
            elif self.fate(at) == OPEN:
                self.end(at, "skipped")


@dataclass
class Queue:
    options: dict[str, int]
    groups: dict[str, dict[str, Lane]] = field(default_factory=dict)
    logs: dict[str, list[Message]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    held_up: set[str] = field(default_factory=set)
    """Partitions whose retention a lease has held up: they are looked at again some time later."""
    waiting: list[Waiting] = field(default_factory=list)
    paused: set[tuple[str | None, str | None]] = field(default_factory=set)
    """(group, partition), None for any."""

    def subscribe(self, group: str, *, conflates: bool = False) -> None:
        self.groups[group] = {name: Lane(log, conflates) for name, log in self.logs.items()}
        self.conflating = {*getattr(self, "conflating", set()), *([group] if conflates else [])}

    def append(self, partition: str, message: Message) -> int:
        log = self.logs.setdefault(partition, [])
        self.starts.setdefault(partition, 0)
        log.append(message)
        for group, lanes in self.groups.items():
            lanes.setdefault(partition, Lane(log, group in self.conflating))
        return len(log) - 1

    def append_due(self, now: int) -> int:
        """Append due messages in order. Returns their number."""
        due = sorted(one for one in self.waiting if one.due_at <= now)
        for one in due:
            self.waiting.remove(one)
            self.append(one.partition, Message(one.id, one.tx, now))
        return len(due)

    def find(self, partition: str, tx: str) -> Waiting | None:
        return next((one for one in self.waiting if (one.partition, one.tx) == (partition, tx)), None)

    def cancel(self, partition: str, tx: str) -> bool:
        found = self.find(partition, tx)
        if found is not None:
            self.waiting.remove(found)
        return found is not None

    def reschedule(self, partition: str, tx: str, due_at: int) -> int | None:
        found = self.find(partition, tx)
        if found is None:
            return None
        self.waiting[self.waiting.index(found)] = found._replace(due_at=due_at)
        return due_at

    def is_paused(self, group: str, partition: str) -> bool:
        return bool(self.paused & {(None, None), (group, None), (None, partition), (group, partition)})

    def pop(self, group: str, partition: str, lease: str, batch: int, now: int) -> list[int]:
        lane = self.groups[group].get(partition)
        if lane is None or self.is_paused(group, partition):
            return []
        return lane.pop(lease, batch, self.options, now)

    def pause(self, group: str | None, partition: str | None) -> None:
        self.paused.add((group, partition))

    def resume(self, group: str | None, partition: str | None) -> bool:
        """Resume a target. Returns True if it was paused."""
        was = (group, partition) in self.paused
        self.paused.discard((group, partition))
        return was

    def seek(self, group: str, to: str, partition: str | None) -> None:
        for name, lane in self.groups[group].items():
            if partition in (None, name):
                lane.seek(self.starts[name] if to == "beginning" else len(lane.log))

    def clear(self, partition: str | None) -> int:
        """Delete all messages of a partition or of all, including scheduled ones.

        Returns the number deleted from the log.
        """
        names = [name for name in self.logs if partition in (None, name)]
        cleared = sum(len(self.logs[name]) - self.starts[name] for name in names)
        for name in names:
            self.starts[name] = len(self.logs[name])
            for lane in self.lanes(name):
                lane.seek(len(lane.log))
        self.waiting = [one for one in self.waiting if partition not in (None, one.partition)]
        return cleared

    def configure(self, delay_seconds: int) -> None:
        self.options = {**self.options, "delay_seconds": delay_seconds}

    def lanes(self, partition: str) -> Iterator[Lane]:
        return (lanes[partition] for lanes in self.groups.values() if partition in lanes)

    def may_go(self, partition: str, now: int) -> tuple[int, bool]:
        """Return the position below which messages may be deleted by age, and True if a lease limited it."""
        age = self.options["retention_seconds"] * SECOND
        old = sum(bool(age) and now - message.created_at >= age for message in self.logs[partition])
        held = [at for lane in self.lanes(partition) for at in lane.leased]
        bound = max(self.starts[partition], min([old, *held]))
        return bound, bound < old

    def forget_below(self, partition: str, start: int) -> None:
        self.starts[partition] = start
        for lane in self.lanes(partition):
            lane.forget_below(start)

    def depth(self) -> int:
        """Return the number of messages that some group has open, or of all messages if there is no group."""
        return sum(
            any(lane.fate(at) == OPEN for lane in self.lanes(name)) or not self.groups
            for name, log in self.logs.items()
            for at in range(self.starts[name], len(log))
        )
