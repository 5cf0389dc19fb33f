"""Steps about time, pauses and schedules. Every answer and every message's fate is compared with the model."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from fairlane.model.batch import Batch
from fairlane.model.group import Seek, Subscription
from fairlane.model.message import Message as Delivered
from tests.stateful.backends import Backend
from tests.stateful.delivery_model import SECOND, Message, Queue, Waiting
from tests.stateful.losses import Losing

QUEUE = "delivery"
EPOCH = 1_800_000_000 * SECOND
NEWEST = "newest"
GROUPS = ("all", NEWEST)

partitions = st.sampled_from(["a", "a", "b"])
groups = st.sampled_from(GROUPS)
# Targets of a pause: one lane, a partition, a group, the queue.
pauses = st.sampled_from([("all", "b"), (None, "b"), (None, "a"), (NEWEST, None), ("all", None), (None, None)])
lanes = st.tuples(st.sampled_from(["all", "all", NEWEST]), st.none() | partitions)
Act = tuple[str, str | None, str | None, Any]
"""A verb, its group and partition (None for all), and its options."""
acts = st.one_of(
    st.builds(lambda scope: ("pause", *scope, None), pauses),
    st.builds(lambda scope, any_of_them: ("resume", *scope, any_of_them), pauses, st.booleans()),
    st.builds(lambda lane, to: ("seek", *lane, to), lanes, st.sampled_from(["beginning", "end"])),
    st.builds(lambda delay: ("configure", None, None, delay), st.sampled_from([0, 3])),
    st.builds(lambda partition: ("clear", None, partition, None), st.none() | partitions),
)
options = st.fixed_dictionaries(
    {
        "unordered": st.sampled_from([False, False, True]),
        "delay_seconds": st.sampled_from([0, 0, 3]),
        "ttl_seconds": st.sampled_from([4, 4, 0]),
        "drop": st.booleans(),
        "retention_seconds": st.sampled_from([10, 0]),
        "retry_limit": st.integers(0, 1),
    }
)


class DeliveryMachine(Losing):
    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.clock = backend.broker_loop.clock
        self.broker = backend.broker_loop.broker
        self.held: list[tuple[str, str, list[Delivered[Any]]]] = []
        self.ids: list[tuple[str, str]] = []
        self.made = 0

    def run(self, call: Any) -> Any:
        return self.backend.broker_loop.run(call)

    def teardown(self) -> None:
        self.backend.leave()

    @property
    def now(self) -> int:
        return self.clock.at

    @initialize(chosen=options)
    def begin(self, chosen: dict[str, int]) -> None:
        self.clock.at = max(self.clock.at, EPOCH)
        # Nothing happens in the background: due messages are appended by steps.
        self.run(self.broker._engine.scheduler_loop.stop())
        unordered = chosen["unordered"]
        delayed = {} if unordered else {name: chosen[name] for name in ("delay_seconds", "ttl_seconds")}
        if unordered:
            chosen = {**chosen, "delay_seconds": 0, "ttl_seconds": 0}
        self.configured: dict[str, Any] = {
            "ordering": "unordered" if unordered else "per_key",
            "on_expiry": "drop" if chosen["drop"] else "dead_letter",
            "retention_enabled": chosen["retention_seconds"] > 0,
            "retention_seconds": chosen["retention_seconds"],
            "retry_limit": chosen["retry_limit"],
            "lease_seconds": 7 * 86_400,
            **delayed,
        }
        self.queue_id = self.run(self.broker.queues.configure(QUEUE, **self.configured)).id
        self.model = Queue(chosen)
        for group in GROUPS[: 1 if unordered else 2]:
            self.run(self.broker.pop(QUEUE, group=group, subscription=Subscription(conflation=group == NEWEST)))
            self.model.subscribe(group, conflates=group == NEWEST)

    @rule(partition=partitions, count=st.integers(1, 3))
    def push(self, partition: str, count: int) -> None:
        for _ in range(count):
            with self.losing("messages", "push"):
                outcome = self.run(self.broker.push(QUEUE, 0, partition=partition))
            message = Message(outcome.message_id, outcome.transaction_id, self.now)
            assert self.model.append(partition, message) == outcome.position

    @rule(partition=partitions, delay_ms=st.sampled_from([500, 4000, 4000, 12_000]), named=st.booleans())
    def schedule(self, partition: str, delay_ms: int, named: bool) -> None:
        self.made += 1
        tx = f"id {self.made}" if named else None
        due_at = self.now + delay_ms * 1000
        for again, _ in enumerate(self.calls()):
            with self.losing("scheduled", "add"):
                call = self.broker.push(QUEUE, 0, partition=partition, transaction_id=tx, delay_ms=delay_ms)
                outcome = self.run(call)
            if named and again:
                assert (outcome.status, outcome.message_id) == ("duplicate", self.model.waiting[-1].id)
                continue
            assert (outcome.status, outcome.deliver_at) == ("scheduled", due_at)
            self.model.waiting.append(Waiting(due_at, outcome.message_id, partition, outcome.transaction_id))
            self.ids = [(partition, outcome.transaction_id), *self.ids][:5]

    @rule(pick=st.integers(0, 4))
    def cancel(self, pick: int) -> None:
        if self.ids:
            partition, tx = self.ids[pick % len(self.ids)]
            for _ in self.calls():
                cancelled = self.run(self.broker.scheduled.cancel(QUEUE, tx, partition=partition))
                assert cancelled == self.model.cancel(partition, tx)

    @rule(pick=st.integers(0, 4), delay_ms=st.sampled_from([0, 2000, 60_000]))
    def reschedule(self, pick: int, delay_ms: int) -> None:
        if self.ids:
            partition, tx = self.ids[pick % len(self.ids)]
            for _ in self.calls():
                due_at = self.run(self.broker.scheduled.reschedule(QUEUE, tx, partition=partition, delay_ms=delay_ms))
                assert due_at == self.model.reschedule(partition, tx, self.now + delay_ms * 1000)

    @rule(passed=st.sampled_from([5 * SECOND, 11 * SECOND, 1, SECOND // 2, SECOND, None]))
    def time_passes(self, passed: int | None) -> None:
        """Advance the clock. None stands for the time of the next due message, to the microsecond."""
        due = min((one.due_at for one in self.model.waiting), default=self.now)
        self.clock.at = max(self.now, due) if passed is None else self.now + passed

    @rule()
    def append_due(self) -> None:
        appended = 0
        while (step := self.run(self.broker._engine.store.scheduled.append_due(limit=3))).count:
            appended += step.queues.get(self.queue_id, 0)
        assert appended == self.model.append_due(self.now)

    @rule(partition=partitions, passed=st.sampled_from([5 * SECOND, 3 * SECOND]))
    def read_after_a_while(self, partition: str, passed: int) -> None:
        self.push(partition, 2)
        self.clock.at += passed
        for group in GROUPS:
            self.pop(group, partition, 3)

    @rule(group=groups, partition=partitions, batch=st.integers(1, 4))
    def pop(self, group: str, partition: str, batch: int) -> None:
        if group not in self.model.groups:
            return
        if self.model.is_paused(group, partition) and self.model.options["ttl_seconds"]:
            return  # whether what is stopped expires at once or when it is resumed is not promised
        taken = self.run(self.broker.pop(QUEUE, group=group, partition=partition, batch=batch))
        self.same_batch(self.model, partition, taken, self.model.pop(group, partition, taken.lease, batch, self.now))
        if taken:
            self.held.append((group, partition, list(taken)))

    def same_batch(self, model: Queue, partition: str, taken: Batch[Any], expected: list[int]) -> None:
        log = model.logs.get(partition, [])
        assert [(one.position, one.id) for one in taken] == [(at, log[at].id) for at in expected]

    @rule(pick=st.integers(0, 3), fails=st.booleans())
    def settle(self, pick: int, fails: bool) -> None:
        """Ack a batch, or fail its first message."""
        if not self.held:
            return
        group, partition, batch = self.held.pop(pick % len(self.held))
        lane = self.model.groups[group][partition]
        again = len(list(self.calls())) > 1
        if fails:
            [outcome] = self.run(self.broker.nack(batch[0], error="no", check=False))
            assert outcome.success
            assert outcome.dead_lettered == lane.fail(batch[0].position, self.model.options)
            assert not again or not self.run(self.broker.nack(batch[0], error="no", check=False))[0].success, (
                "it counts once"
            )
            batch = batch[1:] if self.model.options["unordered"] else []
        if batch:
            for _ in range(1 + again):
                assert all(outcome.success for outcome in self.run(self.broker.ack(batch)))
            lane.finish([one.position for one in batch])

    @rule(act=acts)
    def operate(self, act: Act) -> None:
        """Run a verb of an operator. A resume mostly names a paused target."""
        if act[0] == "resume" and act[3] and self.model.paused:
            act = ("resume", *min(self.model.paused, key=str), True)
        if self.possible(act):
            for _ in self.calls():
                assert self.run(self.act(act)) == act_on(self.model, act)
            self.forget_lost_batches()

    @rule(act=acts, group=groups, partition=partitions, batch=st.integers(1, 4))
    def operate_beside_a_pop(self, act: Act, group: str, partition: str, batch: int) -> None:
        """Run a verb concurrently with a pop.

        One takes effect after the other, or the pop finds its lane leased and skips it.
        """
        verb, at_group, at_partition, how = act
        group, partition = at_group or group, at_partition or partition
        self.push(partition, 2)
        if verb == "resume":
            self.operate(("pause", at_group, at_partition, None))
        elif verb == "configure":
            self.operate(("configure", None, None, 3 - how))
        else:
            self.clock.at += self.model.options["delay_seconds"] * SECOND
        if not self.possible(act) or group not in self.model.groups:
            return
        stops = verb in ("pause", "resume") or self.model.is_paused(group, partition)
        if stops and self.model.groups[group][partition].too_old(self.model.options, self.now):
            return  # as in `pop`
        pop = self.broker.pop(QUEUE, group=group, partition=partition, batch=batch)
        taken, answer = self.backend.broker_loop.meet(pop, self.act(act))
        seen = self.run(self.look())

        def popped(model: Queue) -> None:
            self.same_batch(model, partition, taken, model.pop(group, partition, taken.lease, batch, self.now))

        def acted(model: Queue) -> None:
            assert answer == act_on(model, act)

        orders = [(popped, acted), (acted, popped), *([] if taken else [(acted,)])]
        self.model = self.one_that_agrees(orders, seen)
        if taken:
            self.held.append((group, partition, list(taken)))
        self.forget_lost_batches()
        self.pop(group, partition, batch)

    def one_that_agrees(self, orders: Sequence[Sequence[Callable[[Queue], None]]], seen: Any) -> Queue:
        """Return the model after the steps that explain the observed state. Raises AssertionError if none do."""
        failed: list[AssertionError] = []
        for steps in orders:
            model = copy.deepcopy(self.model)
            try:
                for step in steps:
                    step(model)
                agrees(model, seen)
            except AssertionError as error:
                failed.append(error)
            else:
                return model
        raise ExceptionGroup("in no order", failed)

    def possible(self, act: Act) -> bool:
        """Return True if the target of the verb exists."""
        verb, group, partition, _ = act
        if verb == "configure" and self.model.options["unordered"]:
            return False
        return group in (None, *self.model.groups) and partition in (None, *self.model.logs)

    async def act(self, act: Act) -> object:
        verb, group, partition, how = act
        if verb == "pause":
            await self.broker.pauses.pause(QUEUE, group=group, partition=partition)
            return None
        if verb == "resume":
            return await self.broker.pauses.resume(QUEUE, group=group, partition=partition)
        if verb == "configure":
            await self.broker.queues.configure(QUEUE, **{**self.configured, "delay_seconds": how})
            return None
        if verb == "seek":
            await self.broker.groups.seek(QUEUE, group or "", Seek(how), partition=partition)
            return None
        store = self.broker._engine.store
        named = await store.queues.named(self.queue_id, partition) if partition else None
        return await store.browse.clear(self.queue_id, partition=named.id if named else None)

    def forget_lost_batches(self) -> None:
        """Drop batches whose lease an operator ended."""
        lanes = self.model.groups
        self.held = [one for one in self.held if one[2][0].lease in lanes[one[0]][one[1]].leased.values()]

    @rule()
    def retain(self) -> None:
        self.run(self.broker.retention.run())
        for state in self.run(self.broker._engine.store.statistics.partitions(self.queue_id)):
            if state.name in self.model.logs:
                bound, held_up = self.model.may_go(state.name, self.now)
                assert self.model.starts[state.name] <= state.start <= bound
                assert state.start == bound or state.name in self.model.held_up
                if held_up:
                    self.model.held_up.add(state.name)
                self.model.forget_below(state.name, state.start)

    @invariant()
    def every_message_has_one_fate(self) -> None:
        agrees(self.model, self.run(self.look()))

    async def look(self) -> list[Any]:
        lanes = (self.broker.groups.lanes(QUEUE, group) for group in self.model.groups)
        return list(
            await asyncio.gather(self.broker.queues.depth(QUEUE), self.broker.scheduled.page(QUEUE, limit=1000), *lanes)
        )


def agrees(model: Queue, seen: Sequence[Any]) -> None:
    depth, waiting, *groups = seen
    assert depth == model.depth()
    assert [(one.deliver_at, one.id) for one in waiting.messages] == sorted(one[:2] for one in model.waiting)
    for lanes, states in zip(model.groups.values(), groups, strict=True):
        for state in states:
            if state.name not in lanes:
                continue
            lane = lanes[state.name]
            assert (state.start, state.head) == (model.starts[state.name], len(lane.log))
            assert state.committed == lane.committed()
            assert (state.dead, state.expired) == (lane.dead, lane.expired)
            leased = state.in_flight if state.leased_until is None else state.leased_until - state.committed
            assert leased == len(lane.leased)
            ended = lane.count("acked", "passed over", "skipped", "dead", "expired")
            waiting_now = len(lane.open()) - len(lane.leased)
            fates = ended + len(lane.leased) + waiting_now
            assert fates == state.head, "stored = finished + dead + expired + leased + waiting"


def act_on(model: Queue, act: Act) -> object:
    """Run a verb of an operator. Returns its answer."""
    verb, group, partition, how = act
    if verb == "pause":
        model.pause(group, partition)
        return None
    if verb == "resume":
        return model.resume(group, partition)
    if verb == "configure":
        model.configure(how)
        return None
    if verb == "seek":
        model.seek(group or "", how, partition)
        return None
    return model.clear(partition)
