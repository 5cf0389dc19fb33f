"""A model of a queue in plain lists and dictionaries, without storage, batches and concurrency.

It is written from the documentation alone, so that it does not repeat mistakes of the code. Times are microseconds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

DONE, NACKS = ("completed", "success"), ("failed", "retry")
SECOND = 1_000_000
NEVER = 1 << 62
Item = tuple[str, str | None, object]  # to push: partition, transactionId, data
Order = Callable[[dict[str, int]], list[str]]  # of lanes that are ready, with the time since when
Letter = tuple[str | None, int, int, bool]  # error, attempts, when it was given up, whether it was replayed
Taken = tuple[str, int, "Message", int]  # partition, position, message, failed attempts


class Message(NamedTuple):
    id: str
    tx: str
    data: object
    created_at: int


class Word(NamedTuple):  # what a consumer says of one message
    partition: str
    tx: str
    status: str = "completed"
    lease: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    position: int | None = None  # if not known, the newest message with this id is meant


class Answer(NamedTuple):
    code: str | None = None
    noop: bool = False
    dead: bool = False
    released: bool = False


@dataclass
class Lane:  # one partition as one group sees it
    log: list[Message]
    committed: int = 0
    ready_at: int = NEVER
    lease: str | None = None  # also one that ran out
    upto: int = 0  # the position behind the leased batch
    handed: int = 0  # behind what the last holder was given
    ahead: dict[int, str] = field(default_factory=dict)  # how messages ended that were finished before others
    ends_at: int = 0
    first: int = 0  # first position of the batch that was leased last
    ended: str | None = None  # the lease that its holder, or an ack, ended last
    failures: dict[int, tuple[int, str | None]] = field(default_factory=dict)  # attempts and last error
    alone_until: int = 0  # the end of a lost batch: one message at a time until there
    gave_up: int = 0
    fates: list[str] = field(default_factory=list)  # how each message below `committed` ended
    letters: dict[int, Letter] = field(default_factory=dict)

    def rest(self, ready_at: int) -> None:
        """End the lease. The lane is ready from `ready_at` on, if it has messages."""
        self.lease, self.upto, self.ends_at = None, 0, 0
        self.ready_at = ready_at if self.committed < len(self.log) else NEVER

    def give_back(self, now: int) -> None:
        """Release the lease. It is remembered as the last one only if something of its batch was finished."""
        if self.committed > self.first or any(self.first <= at < self.upto for at in self.ahead):
            self.ended = self.lease
        self.rest(now)

    def move(self, to: int, fate: str) -> None:
        self.failures = {at: failure for at, failure in self.failures.items() if at >= to}
        self.fates = self.fates[:to] + [fate] * (to - self.committed)
        self.committed = to

    def finish(self, at: int, fate: str) -> None:
        """Finish one message, and move the cursor over all finished ones."""
        self.failures.pop(at, None)
        self.ahead[at] = fate
        self.step_over()

    def step_over(self) -> None:
        while self.committed in self.ahead:
            self.move(self.committed + 1, self.ahead.pop(self.committed))

    def tries(self, at: int) -> int:
        return self.failures.get(at, (0, None))[0]

    def charge(self, at: int, error: str | None) -> None:
        self.failures[at] = self.tries(at) + 1, error

    def dead_letter(self, at: int, now: int) -> None:
        tries, error = self.failures[at]
        self.gave_up, self.letters[at] = self.gave_up + 1, (error, tries, now, False)
        self.finish(at, "dead")

    def settle(self, words: Sequence[Word], options: dict[str, int], now: int) -> list[Answer]:
        """Apply all acks of one call to this lane, with one lease or none."""
        lease, holder, held = words[0].lease, self.lease, self.ends_at > now
        before, end = self.committed, len(self.log)
        newest = {message.tx: at for at, message in enumerate(self.log)}
        positions = [newest.get(word.tx, end) if word.position is None else word.position for word in words]
        if lease is not None and not (held and lease == self.lease):
            over = all(at < before or at in self.ahead for at in positions)
            again = lease == self.ended and over and all(w.status in DONE for w in words)
            return [Answer(noop=True) if again else Answer("lease_lost") for w in words]
        answers, nacked, ended = [Answer("unresolvable")] * len(words), False, set(self.ahead)
        for at, index in sorted((at, i) for i, at in enumerate(positions) if at < (self.upto if lease else end)):
            word, status = words[index], words[index].status
            if at < before or at in ended:
                answers[index] = Answer(noop=True) if status in DONE else Answer("committed")
            elif at >= self.handed:
                answers[index] = Answer("not_delivered")
            elif nacked:
                answers[index] = Answer("redelivered")
            elif status in (*DONE, "dlq"):
                if status in DONE:
                    self.finish(at, "acked")
                else:
                    self.charge(at, word.error)
                    self.dead_letter(at, now)
                answers[index] = Answer(dead=status not in DONE)
            else:
                nacked, failed = True, status == "failed"
                if failed:
                    self.charge(at, word.error)
                over = failed and self.tries(at) > options["retry_limit"]
                backoff_ms = min(options["retry_delay_ms"] << self.tries(at) >> 1, options["retry_delay_max_ms"])
                sleep_ms = backoff_ms * (failed and not over) if word.delay_ms is None else word.delay_ms
                if dead := over and at == self.committed:  # with messages before it open, it falls in its turn
                    self.dead_letter(at, now)
                self.rest(now + 1000 * sleep_ms * (not dead))
                answers[index] = Answer(dead=dead)
        if not nacked and self.committed >= (self.upto if self.lease else before + 1):
            self.rest(now)
        self.ended, freed = (holder, True) if held and self.lease is None else (self.ended, False)
        return [answer._replace(released=freed and not (answer.code or answer.noop)) for answer in answers]


@dataclass
class Queue:
    options: dict[str, int]
    partitions: dict[str, list[Message]] = field(default_factory=dict)
    groups: dict[str, dict[str, Lane]] = field(default_factory=dict)

    def depth(self) -> int:
        done = {name: [lanes[name].committed for lanes in self.groups.values()] for name in self.partitions}
        return sum(len(log) - min(done[name], default=0) for name, log in self.partitions.items())

    def append(self, partition: str, message: Message) -> int:
        log = self.partitions.setdefault(partition, [])
        log.append(message)
        for lanes in self.groups.values():
            lane = lanes.setdefault(partition, Lane(log))
            lane.ready_at = message.created_at if lane.ready_at == NEVER else lane.ready_at
        return len(log) - 1

    def push(self, items: Sequence[Item], ids: Sequence[tuple[str, str]], now: int) -> list[tuple[str, str, int]]:
        """Return (status, id, position) of each item. `ids` has the id and transactionId of each new message."""
        trial, window, answers = copy.deepcopy(self), self.options["dedup_seconds"] * SECOND, []
        for (partition, tx, data), (id, given) in zip(items, ids, strict=True):
            log = trial.partitions.get(partition, [])
            known = [(m.id, at) for at, m in enumerate(log) if m.tx == tx and 0 < window >= now - m.created_at]
            at = trial.append(partition, Message(id, given, data, now)) if not known else 0
            answers.append(("duplicate", *known[-1]) if known else ("queued", id, at))
        if not 0 < self.options["max_size"] < trial.depth() or trial.depth() == self.depth():
            vars(self).update(vars(trial))
        stored = {message.id for log in self.partitions.values() for message in log}
        return [answer if answer[1] in stored else ("refused", "", -1) for answer in answers]

    def pop(self, group: str, lease: str, batch: int, most: int, ends_at: int, now: int, order: Order) -> list[Taken]:
        """Return up to `batch` messages of up to `most` lanes. With `ends_at` 0 they are finished at once."""
        got, lanes, limit = list[Taken](), self.groups[group], self.options["retry_limit"]
        for name in order({name: lane.ready_at for name, lane in lanes.items() if lane.ready_at <= now}):
            lane, room = lanes[name], batch - len(got)
            if room == 0 or len({name for name, *_ in got}) == most:
                break
            if lane.lease is not None:
                lane.alone_until = max(lane.alone_until, lane.upto)
                lane.charge(lane.committed, "Partition lease expired")
            lane.step_over()  # what was finished ahead of messages that were acked as they were handed out
            while lane.tries(lane.committed) > limit:
                lane.dead_letter(lane.committed, now)
            lane.rest(now)
            first, over = lane.committed, [*(at for at in lane.failures if lane.tries(at) > limit), *lane.ahead]
            upto = min([first + (1 if first < lane.alone_until else room), len(lane.log), *over])
            got += [(name, at, lane.log[at], lane.tries(at) * (at == first)) for at in range(first, upto)]
            if ends_at == 0:
                lane.move(upto, "acked")
                lane.rest(now)
            elif upto > first:
                lane.lease, lane.first, lane.upto, lane.ends_at, lane.ready_at = lease, first, upto, ends_at, ends_at
                lane.handed = upto
        return got

    def ack(self, group: str, words: Sequence[Word], now: int) -> list[Answer]:
        answers: dict[Word, Answer] = {}
        for name in {word.partition for word in words}:
            mine = [word for word in words if word.partition == name]
            lane = self.groups.get(group, {}).get(name, Lane([]))
            answers.update(zip(mine, lane.settle(mine, self.options, now), strict=True))
        return [answers[word] for word in words]

    def held(self, lease: str, now: int) -> list[Lane]:
        return [x for lanes in self.groups.values() for x in lanes.values() if x.lease == lease and x.ends_at > now]

    def renew(self, lease: str, seconds: int, now: int) -> list[int]:
        for lane in self.held(lease, now):
            lane.ends_at = lane.ready_at = max(lane.ends_at, now + seconds * SECOND)
        return [lane.ends_at for lane in self.held(lease, now)]

    def seek(self, group: str, to: str, at: int, now: int, only: str | None = None) -> None:
        """Move a group, or create it: `all` is the beginning, `new` the end."""
        begun = {name: Lane(log) for name, log in self.partitions.items()}
        for name, lane in self.groups.setdefault(group, begun).items():
            if only in (None, name):
                head, since = len(lane.log), sum(message.created_at < at for message in lane.log)
                target = {"end": head, "new": head, "time": since, "position": min(at, head)}
                lane.move(target.get(to, 0), "skipped")
                lane.failures, lane.ahead, lane.alone_until, lane.ended, lane.handed = {}, {}, 0, None, 0
                lane.rest(now)
