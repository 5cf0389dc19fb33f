"""The steps: what producers, consumers, administrators and the passing of time can do to two queues."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from fairlane.model.group import Seek
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckStatus
from fairlane.store.values import DeadFilter
from tests.stateful.agreement import Agreement
from tests.stateful.driver import Choice
from tests.stateful.model import SECOND

PARTITIONS = ("a", "b", "c")
GROUPS = (QUEUE_MODE, "audit")

# About, long before and long after the times inside the ids that this process mints: they must not matter.
EPOCHS = (1_800_000_000 * SECOND, 1_000_000_000 * SECOND, 4_000_000_000 * SECOND)

queues = st.sampled_from(["orders", "mail"])
partitions = st.sampled_from(PARTITIONS)
groups = st.sampled_from(GROUPS)
picks = st.integers(0, 5)
statuses = st.sampled_from(["completed", "failed", "retry", "dlq", "success"])
said = st.lists(st.none() | statuses, min_size=1, max_size=5)
options = st.fixed_dictionaries(
    {
        "lease_seconds": st.sampled_from([5, 60]),
        "retry_limit": st.integers(0, 2),
        "retry_delay_ms": st.sampled_from([0, 1000]),
        "retry_delay_max_ms": st.sampled_from([60_000, 1500]),
        "max_size": st.sampled_from([0, 8, 3]),
        "dedup_seconds": st.sampled_from([86_400, 10, 0]),
    }
)
# No id, a word, one that was used before, or a UUIDv7 made this many milliseconds from now.
transaction_ids = st.one_of(
    st.none(),
    st.sampled_from(["x", "y"]),
    st.tuples(st.just("again"), st.integers(0, 9)),
    st.tuples(st.just("uuid7"), st.sampled_from([0, -1, -59_999, -60_001, 1, 5000])),
)
choices = st.tuples(queues, partitions, transaction_ids)
named_choices = st.tuples(queues, partitions, transaction_ids.filter(lambda choice: choice is not None))

# What would end too many histories early.
rarely = st.integers(0, 3).map(lambda number: number == 0)

handed_out = precondition(lambda machine: machine.batches)


class QueueMachine(Agreement):
    @initialize(epoch=st.sampled_from(EPOCHS), tick=st.sampled_from([1000, 0]), first=options, second=options)
    def begin(self, epoch: int, tick: int, first: dict[str, int], second: dict[str, int]) -> None:
        self.clock.at, self.tick = epoch, tick
        self.open()
        self.make(self.name("orders"), first)
        self.make(self.name("mail"), second)

    @rule(chosen=st.lists(choices, min_size=1, max_size=4))
    def push(self, chosen: list[Choice]) -> None:
        items = self.items(chosen)
        self.compare_pushes(items, self.run(self.broker.push_many(items)))

    @rule(queue=queues, partition=partitions, count=st.integers(2, 5))
    def push_to_one_lane(self, queue: str, partition: str, count: int) -> None:
        items = self.items([(queue, partition, None)] * count)
        self.compare_pushes(items, self.run(self.broker.push_many(items)))

    @rule(
        queue=queues,
        group=groups,
        batch=st.integers(1, 5),
        lanes=st.integers(1, 3),
        lease_seconds=st.sampled_from([None, 1, 30]),
        mode=st.sampled_from(["all", "new", "time"]),
    )
    def pop(self, queue: str, group: str, batch: int, lanes: int, lease_seconds: int | None, mode: str) -> None:
        mode = mode if group != QUEUE_MODE else "all"
        self.take(self.name(queue), group, batch=batch, lanes=lanes, lease_seconds=lease_seconds, mode=mode)

    @rule(queue=queues, group=groups, batch=st.integers(1, 5), partition=partitions)
    def pop_from_one_lane(self, queue: str, group: str, batch: int, partition: str) -> None:
        self.take(self.name(queue), group, batch=batch, partition=partition)

    @rule(queue=queues, group=groups, batch=st.integers(1, 3), lanes=st.integers(1, 3))
    def pop_and_finish_at_once(self, queue: str, group: str, batch: int, lanes: int) -> None:
        self.take(self.name(queue), group, batch=batch, lanes=lanes, auto_ack=True)

    @rule(queue=queues, group=groups, batch=st.integers(1, 3))
    def consumer_dies(self, queue: str, group: str, batch: int) -> None:
        """Nobody ever speaks of the batch again; the lease runs out to the microsecond."""
        lost = self.take(self.name(queue), group, batch=batch)
        if lost is not None and lost.lease is not None:
            self.batches.remove(lost)
            self.clock.at = max(lane.ends_at for lane in self.models[lost.queue].held(lost.lease, self.now))

    @handed_out
    @rule(pick=picks, count=st.integers(1, 5), status=statuses, delay_ms=st.sampled_from([None, 0, 2500]))
    def ack(self, pick: int, count: int, status: AckStatus, delay_ms: int | None) -> None:
        delay_ms = delay_ms if status in ("failed", "retry") else None
        self.ack_deliveries(self.picked(pick), count, status, delay_ms)

    @handed_out
    @rule(pick=picks, said=said, backwards=st.booleans())
    def ack_each_in_its_way(self, pick: int, said: list[str | None], backwards: bool) -> None:
        batch = self.picked(pick)
        words = self.words(batch, said)
        self.ack_words(batch, words[::-1] if backwards else words)

    @handed_out
    @rule(pick=picks, which=picks, status=statuses)
    def ack_without_a_lease(self, pick: int, which: int, status: str) -> None:
        batch = self.picked(pick)
        word = self.word(batch, which % len(batch.deliveries), status)
        if batch.group in self.models[batch.queue].groups:
            self.ack_words(batch, [word._replace(lease=None)])

    @handed_out
    @rule(pick=picks, status=statuses)
    def ack_what_was_never_stored(self, pick: int, status: str) -> None:
        batch = self.picked(pick)
        if batch.group in self.models[batch.queue].groups:
            self.ack_words(batch, [self.word(batch, 0, status)._replace(tx="nobody", position=None)])

    @handed_out
    @rule(pick=picks, status=statuses)
    def ack_the_newest_under_an_old_lease(self, pick: int, status: str) -> None:
        """Most often that was not handed out yet."""
        batch = self.picked(pick)
        if batch.life == self.lives[batch.queue] and batch.lease is not None:
            word = self.word(batch, 0, status)
            log = self.models[batch.queue].partitions[word.partition]
            self.ack_words(batch, [word._replace(tx=log[-1].tx, position=len(log) - 1)])

    @handed_out
    @rule(pick=picks, said=said)
    def ack_for_another_group(self, pick: int, said: list[str | None]) -> None:
        batch = self.picked(pick)
        other = GROUPS[1 - GROUPS.index(batch.group)]
        if other in self.models[batch.queue].groups and batch.lease is not None:
            self.ack_words(batch, self.words(batch, said), group=other)

    @handed_out
    @rule(pick=picks, seconds=st.sampled_from([1, 10, 100]))
    def renew(self, pick: int, seconds: int) -> None:
        batch = self.picked(pick)
        if batch.lease is not None:
            outcome = self.run(self.broker.renew(batch.lease, seconds=seconds))
            ends = self.models[batch.queue].renew(batch.lease, seconds, self.now)
            assert (outcome.renewed, outcome.expires_at) == (len(ends), min(ends, default=None))
            self.note_renewal(batch.lease, self.now + seconds * SECOND)

    @handed_out
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        batch = self.picked(pick)
        if batch.lease is not None:
            lanes = self.models[batch.queue].held(batch.lease, self.now)
            assert self.run(self.broker.release(batch.lease)) == len(lanes)
            for lane in lanes:
                lane.ended = lane.lease
                lane.rest(self.now)
            self.drop_leases(batch)

    @handed_out
    @rule(pick=picks, said=said, pushed=st.lists(named_choices, max_size=3))
    def transaction(self, pick: int, said: list[str | None], pushed: list[Choice]) -> None:
        batch = self.picked(pick)
        self.transact(batch, self.words(batch, said), self.items(pushed))

    @rule(
        queue=queues,
        group=groups,
        to=st.sampled_from(["beginning", "end", "time", "position"]),
        at=st.integers(0, 5),
        partition=st.none() | partitions,
    )
    def seek(self, queue: str, group: str, to: str, at: int, partition: str | None) -> None:
        name = self.name(queue)
        model = self.models[name]
        if group not in model.groups or partition not in (None, *model.partitions):
            return
        if to == "time":
            times = {message.created_at for log in model.partitions.values() for message in log}
            at = sorted({self.now, *times})[at % (len(times) or 1)]
        self.run(self.broker.seek(name, group, Seek(to, at), partition=partition))  # type: ignore[arg-type]
        model.seek(group, to, at, self.now, partition)
        self.forget_leases(name, group, partition)

    @rule(passed=st.sampled_from([1, 1000, SECOND // 2, SECOND, 5 * SECOND, 11 * SECOND, 61 * SECOND]))
    def time_passes(self, passed: int) -> None:
        self.clock.at += passed

    @rule(pick=picks)
    def a_lease_or_sleep_ends(self, pick: int) -> None:
        """To the microsecond."""
        groups = [lanes for model in self.models.values() for lanes in model.groups.values()]
        waking = {lane.ready_at for lanes in groups for lane in lanes.values()}
        due = sorted(at for at in waking if self.now < at < self.now + 1000 * SECOND)
        self.clock.at = due[pick % len(due)] if due else self.now

    @rule()
    def store_reopens(self) -> None:
        self.run(self.broker.close())
        self.open()

    @rule(queue=queues)
    def replay_dead_letters(self, queue: str) -> None:
        self.replay(self.name(queue))

    @rule(queue=queues, group=st.none() | groups)
    def purge_dead_letters(self, queue: str, group: str | None) -> None:
        name = self.name(queue)
        mine = [lanes for key, lanes in self.models[name].groups.items() if group in (None, key)]
        count = sum(len(lane.letters) for lanes in mine for lane in lanes.values())
        assert self.run(self.broker.purge(name, DeadFilter(group=group))) == count
        for lane in [lane for lanes in mine for lane in lanes.values()]:
            lane.letters.clear()

    @rule(queue=queues, group=groups, rarely=rarely)
    def delete_group(self, queue: str, group: str, rarely: bool) -> None:
        name = self.name(queue)
        if rarely and self.models[name].groups.pop(group, None) is not None:
            self.run(self.broker.delete_group(name, group))
            self.forget_leases(name, group)

    @rule(queue=queues, chosen=options, rarely=rarely)
    def delete_queue_and_make_it_anew(self, queue: str, chosen: dict[str, int], rarely: bool) -> None:
        if rarely:
            self.run(self.broker.delete_queue(self.name(queue)))
            self.forget_leases(self.name(queue))
            self.make(self.name(queue), chosen)

    @rule(queue=queues, max_size=st.sampled_from([0, 2, 5, 9]), retry_limit=st.integers(0, 2))
    def configure_again(self, queue: str, max_size: int, retry_limit: int) -> None:
        name = self.name(queue)
        self.models[name].options.update(max_size=max_size, retry_limit=retry_limit)
        self.configure(name, self.models[name].options)
