"""The steps: what producers, consumers, administrators and the passing of time can do to two queues."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from fairlane.model.group import Seek
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckStatus
from fairlane.store.contract.values import DeadFilter
from tests.stateful.agreement import Agreement
from tests.stateful.driver import Choice
from tests.stateful.model import NEVER, SECOND

# Around, long before and long after the times inside the ids of this process, which must not matter.
EPOCHS = (1_800_000_000 * SECOND, 1_000_000_000 * SECOND, 4_000_000_000 * SECOND)

GROUPS = (QUEUE_MODE, "audit")

# The first values are the simplest, and frequent ones collide: most steps are about one lane of one queue.
queues = st.sampled_from(["orders", "orders", "orders", "mail"])
partitions = st.sampled_from(["a", "a", "b", "c"])
groups = st.sampled_from([QUEUE_MODE, QUEUE_MODE, "audit"])
picks = st.sampled_from([0, 0, 0, 0, 1, 2, 5])
statuses = st.sampled_from(["completed", "failed", "retry", "dlq", "success"])
verdicts = st.lists(st.none() | statuses, min_size=1, max_size=5)
options = st.fixed_dictionaries(
    {
        "lease_seconds": st.sampled_from([60, 5]),
        "retry_limit": st.integers(0, 2),
        "retry_delay_ms": st.sampled_from([0, 1000]),
        "retry_delay_max_ms": st.sampled_from([60_000, 1500]),
        "max_size": st.sampled_from([0, 0, 12]),
        "dedup_seconds": st.sampled_from([86_400, 10, 0]),
    }
)
# No id, a word, an id used before, or a UUIDv7 with a time this many milliseconds from now.
transaction_ids = st.one_of(
    st.none(),
    st.sampled_from(["x", "y"]),
    st.tuples(st.just("again"), st.integers(0, 9)),
    st.tuples(st.just("uuid7"), st.sampled_from([0, -1, -59_999, -60_001, 1, 5000])),
)
choices = st.tuples(queues, partitions, transaction_ids)
acts = st.one_of(
    st.tuples(st.just("reopen")),
    st.tuples(st.just("replay"), queues),
    st.tuples(st.just("configure_again"), queues, st.sampled_from([0, 2, 5, 9]), st.integers(0, 2)),
    st.tuples(st.just("purge"), queues, st.none() | groups),
    st.tuples(st.just("delete_group"), queues, groups),
    st.tuples(st.just("delete_queue"), queues, options),
)


class QueueMachine(Agreement):
    @initialize(epoch=st.sampled_from(EPOCHS), tick=st.sampled_from([1000, 0]), first=options, second=options)
    def begin(self, epoch: int, tick: int, first: dict[str, int], second: dict[str, int]) -> None:
        self.clock.at, self.tick = epoch, tick
        self.make("orders", first)
        self.make("mail", second)

    @rule(chosen=st.lists(choices, min_size=1, max_size=4))
    def push(self, chosen: list[Choice]) -> None:
        self.push_items(self.items(chosen))

    @rule(
        queue=queues,
        group=groups,
        batch=st.integers(1, 5),
        lanes=st.integers(1, 3),
        partition=st.none() | partitions,
        mode=st.sampled_from(["all", "new", "time"]),
        lease_seconds=st.sampled_from([None, 1, 30, 0]),
    )
    def pop(
        self,
        queue: str,
        group: str,
        batch: int,
        lanes: int,
        partition: str | None,
        mode: str,
        lease_seconds: int | None,
    ) -> None:
        """Pop messages. A lease of 0 seconds finishes them at delivery."""
        self.take(
            queue,
            group,
            batch=batch,
            lanes=lanes,
            partition=partition,
            lease_seconds=lease_seconds or None,
            auto_ack=lease_seconds == 0,
            mode=mode if group != QUEUE_MODE else "all",
        )

    @rule(queue=queues, group=groups, batch=st.integers(1, 5), lanes=st.integers(1, 3), verdicts=verdicts)
    def work(self, queue: str, group: str, batch: int, lanes: int, verdicts: list[str | None]) -> None:
        """Pop messages and settle them at once."""
        self.supply(queue, group)
        if taken := self.take(queue, group, batch=batch, lanes=lanes):
            self.ack_words(taken, self.words(taken, verdicts))

    @rule(queue=queues, group=groups, batch=st.integers(1, 3))
    def consumer_dies(self, queue: str, group: str, batch: int) -> None:
        """Lose the batch of a consumer, and let its lease expire to the microsecond."""
        self.supply(queue, group)
        lost = self.take(queue, group, batch=batch)
        if lost is not None and lost.lease is not None:
            self.batches.remove(lost)
            self.clock.at = max(lane.ends_at for lane in self.models[lost.queue].held(lost.lease, self.now))

    @rule(pick=picks, count=st.integers(1, 5), status=statuses, delay_ms=st.sampled_from([None, 0, 2500]))
    def ack(self, pick: int, count: int, status: AckStatus, delay_ms: int | None) -> None:
        if batch := self.picked(pick):
            delay_ms = delay_ms if status in ("failed", "retry") else None
            self.ack_deliveries(batch, count, status, delay_ms)

    @rule(pick=picks, verdicts=verdicts, backwards=st.booleans())
    def ack_each_in_its_way(self, pick: int, verdicts: list[str | None], backwards: bool) -> None:
        if batch := self.picked(pick):
            words = self.words(batch, verdicts)
            self.ack_words(batch, words[::-1] if backwards else words)

    @rule(pick=picks, verdicts=verdicts, size=st.integers(1, 5), lanes=st.integers(1, 3))
    def ack_and_pop(self, pick: int, verdicts: list[str | None], size: int, lanes: int) -> None:
        if batch := self.picked(pick):
            self.ack_and_take(batch, self.words(batch, verdicts), size, lanes)

    @rule(pick=picks, status=statuses, what=st.sampled_from(["no lease", "newest", "nobody", "another group"]))
    def ack_amiss(self, pick: int, status: str, what: str) -> None:
        """Ack without the lease, with the wrong message of the lane or none, or for another group."""
        batch = self.picked(pick)
        if batch is None or batch.life != self.lives[batch.queue]:
            return
        model, words = self.models[batch.queue], self.words(batch, [status] * len(batch.deliveries))
        other = GROUPS[1 - GROUPS.index(batch.group)]
        if what == "no lease" and batch.group in model.groups:
            self.ack_words(batch, [words[-1]._replace(lease=None)])
        elif what == "newest":
            log = model.partitions[words[0].partition]
            self.ack_words(batch, [words[0]._replace(tx=log[-1].tx, position=len(log) - 1)])
        elif what == "nobody" and batch.group in model.groups:
            self.ack_words(batch, [words[0]._replace(tx="nobody", position=None)])
        elif what == "another group" and other in model.groups and batch.lease is not None:
            self.ack_words(batch, words, group=other)

    @rule(pick=picks, seconds=st.sampled_from([1, 10, 100]))
    def renew(self, pick: int, seconds: int) -> None:
        batch = self.picked(pick)
        if batch is not None and batch.lease is not None:
            for _ in self.calls():
                outcome = self.run(self.broker.renew(batch.lease, seconds=seconds))
                ends = self.models[batch.queue].renew(batch.lease, seconds, self.now)
                assert (outcome.renewed, outcome.expires_at) == (len(ends), min(ends, default=None))
            self.note_renewal(batch.lease, self.now + seconds * SECOND)

    @rule(pick=picks)
    def release(self, pick: int) -> None:
        batch = self.picked(pick)
        if batch is not None and batch.lease is not None:
            for _ in self.calls():
                lanes = self.models[batch.queue].held(batch.lease, self.now)
                assert self.run(self.broker.release(batch.lease)) == len(lanes)
                for lane in lanes:
                    lane.give_back(self.now)
            self.drop_leases(batch)

    @rule(pick=picks, verdicts=verdicts, pushed=st.lists(choices, max_size=3))
    def transaction(self, pick: int, verdicts: list[str | None], pushed: list[Choice]) -> None:
        if batch := self.picked(pick):
            self.transact(batch, self.words(batch, verdicts), self.items(pushed))

    @rule(
        queue=queues,
        group=groups,
        to=st.sampled_from(["beginning", "end", "time", "position"]),
        at=st.integers(0, 5),
        partition=st.none() | partitions,
    )
    def seek(self, queue: str, group: str, to: str, at: int, partition: str | None) -> None:
        model = self.models[queue]
        if group not in model.groups or partition not in (None, *model.partitions):
            return
        if to == "time":
            times = {message.created_at for log in model.partitions.values() for message in log}
            at = sorted({self.now, *times})[at % (len(times) or 1)]
        for _ in self.calls():
            self.run(self.broker.groups.seek(queue, group, Seek(to, at), partition=partition))  # type: ignore[arg-type]
            model.seek(group, to, at, self.now, partition)
        self.forget_leases(queue, group, partition)

    @rule(passed=st.sampled_from([1, 1000, SECOND // 2, SECOND, 5 * SECOND, 11 * SECOND, 61 * SECOND, None]))
    def time_passes(self, passed: int | None) -> None:
        """Advance the clock. None stands for the next end of a lease or a sleep, to the microsecond."""
        groups = [lanes for model in self.models.values() for lanes in model.groups.values()]
        waking = [lane.ready_at for lanes in groups for lane in lanes.values()]
        due = min((at for at in waking if self.now < at < NEVER), default=self.now)
        self.clock.at = due if passed is None else self.now + passed

    @rule(act=acts)
    def somebody_administers(self, act: tuple[Any, ...]) -> None:
        for _ in self.calls():
            getattr(self, act[0])(*act[1:])

    def reopen(self) -> None:
        self.backend.broker_loop.reopen()

    def configure_again(self, queue: str, max_size: int, retry_limit: int) -> None:
        options = self.models[queue].options
        options.update(max_size=max_size, retry_limit=retry_limit)
        self.configure(queue, options)

    def purge(self, queue: str, group: str | None) -> None:
        mine = [lanes for name, lanes in self.models[queue].groups.items() if group in (None, name)]
        count = sum(len(lane.letters) for lanes in mine for lane in lanes.values())
        assert self.run(self.broker.dead_letters.purge(queue, DeadFilter(group=group))) == count
        for lane in [lane for lanes in mine for lane in lanes.values()]:
            lane.letters.clear()

    def delete_group(self, queue: str, group: str) -> None:
        if self.models[queue].groups.pop(group, None) is not None:
            self.run(self.broker.groups.delete(queue, group))
            self.forget_leases(queue, group)

    def delete_queue(self, queue: str, options: dict[str, int]) -> None:
        """Delete a queue and create it again."""
        self.run(self.broker.queues.delete(queue))
        self.forget_leases(queue)
        self.make(queue, options)
