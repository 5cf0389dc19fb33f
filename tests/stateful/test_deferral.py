"""The route of writes against a small model: whatever the store and the processes do, each accepted message is stored
once, in the order of its producer, and each accepted ack is applied once, in the order of its consumer.

A careful producer names its messages and repeats a push until it is accepted; a plain one leaves the ids to the broker
and goes on with the next when it hears nothing."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from fairlane.broker.flags import PUSHES_PAUSED
from fairlane.errors import FairlaneError
from tests.stateful.deferral_world import PARTITIONS, FakeLoop, Said, World, clocked

LONG = os.environ.get("FAIRLANE_STATEFUL") == "long"
SEED = "FAIRLANE_STATEFUL_SEED"
HEAL_SECONDS = 600.0
SELDOM = st.sampled_from([False, False, True])
"""Faults that mostly end soon, so that there is progress."""


class Producer:
    """A producer that pushes messages to one partition, each after the answer to the one before."""

    def __init__(self, world: World, partition: str, *, careful: bool) -> None:
        self.world = world
        self.partition = partition
        self.careful = careful
        self.sent = 0
        self.todo: list[tuple[int, bool]] = []
        """The process it uses, and True if admission made the push an operation."""
        self.accepted: list[str] = []
        self.task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self.task is not None and not self.task.done()

    def push(self, process: int, *, defer: bool) -> None:
        self.todo.append((process, defer))
        if not self.busy:
            self.task = self.world.loop.create_task(self._run())

    async def _run(self) -> None:
        while self.todo:
            number, defer = self.todo.pop(0)
            id = f"{self.partition}-{self.sent}" if self.careful else None
            payload = self.sent
            self.sent += 1
            while not await self._accepted(number, id, payload, defer) and self.careful:
                await asyncio.sleep(0.1)
                number += 1  # as a client does, which then uses the next server

    async def _accepted(self, number: int, id: str | None, payload: int, defer: bool) -> bool:
        processes = self.world.processes
        process = processes[number % len(processes)]
        task = process.run(process.push(self.partition, id, b"%d" % payload, defer=defer))
        await asyncio.wait([task])
        if task.cancelled():
            return False
        error = task.exception()
        if error is not None:
            assert isinstance(error, FairlaneError), repr(error)
            return False
        outcome = task.result()
        assert outcome.status in ("queued", "duplicate", "buffered"), outcome
        assert outcome.status != "buffered" or outcome.operation_id, "a 202 names its operation"
        self.accepted.append(outcome.transaction_id)
        return True


class Consumer:
    """A consumer that acks three messages per lease, one by one; a nack also ends the lease.

    Each verdict is repeated until it is accepted. The next lease is taken when this one has ended.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.said: list[Said] = []
        self.todo: list[tuple[int, bool, bool]] = []
        """The process it uses, and True for a failed message and for an ack that became an operation."""
        self._lease: UUID | None = None
        self._next = 0
        self.task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self.task is not None and not self.task.done()

    def ack(self, process: int, *, fails: bool, defer: bool) -> None:
        self.todo.append((process, fails, defer))
        if not self.busy:
            self.task = self.world.loop.create_task(self._run())

    async def _run(self) -> None:
        lane = self.world.lane
        while self.todo:
            number, fails, defer = self.todo.pop(0)
            while self._lease is None and lane.lease is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            if self._lease is None:
                self._lease, self._next = lane.pop(3), lane.committed
            said: Said = (self._lease, "failed" if fails else "completed", self._next)
            while not await self._accepted(number, said, defer):
                await asyncio.sleep(0.1)
                number += 1
            self.said.append(said)
            self._next += 1
            if fails or self._next == lane.upto or lane.lease != self._lease:
                self._lease = None

    async def _accepted(self, number: int, said: Said, defer: bool) -> bool:
        process = self.world.processes[number % len(self.world.processes)]
        task = process.run(process.ack(said, defer=defer))
        await asyncio.wait([task])
        if task.cancelled():
            return False
        error = task.exception()
        if error is not None:
            assert isinstance(error, FairlaneError), repr(error)
            return False
        outcome = task.result()
        assert outcome.success or outcome.code == "lease_lost", outcome
        return True


class DeferralMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = FakeLoop()
        asyncio.set_event_loop(self.loop)
        self._clock = clocked(self.loop)
        self.world = World(self.loop)
        for _ in range(2):
            self.world.start()
        self.careful = Producer(self.world, "a", careful=True)
        self.plain = Producer(self.world, "b", careful=False)
        self.consumer = Consumer(self.world)
        self.expired: set[UUID | None] = set()
        self.advance(0.0)

    def advance(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @rule(
        careful=st.booleans(),
        ways=st.lists(st.sampled_from([(0, False), (1, False), (0, True)]), min_size=1, max_size=4),
        seconds=st.sampled_from([0.0, 0.03, 0.07, 3.0]),
    )
    def push(self, careful: bool, ways: list[tuple[int, bool]], seconds: float) -> None:
        for process, defer in ways:
            (self.careful if careful else self.plain).push(process, defer=defer)
        self.advance(seconds)

    @rule(
        ways=st.lists(
            st.tuples(st.integers(0, 1), st.sampled_from([False, False, True]), SELDOM), min_size=1, max_size=4
        ),
        seconds=st.sampled_from([0.0, 0.03, 0.07, 3.0]),
    )
    def ack(self, ways: list[tuple[int, bool, bool]], seconds: float) -> None:
        for process, fails, defer in ways:
            self.consumer.ack(process, fails=fails, defer=defer)
        self.advance(seconds)

    @rule()
    def expire(self) -> None:
        self.expired.add(self.world.lane.lease)
        self.world.lane.expire()

    @rule(seconds=st.sampled_from([0.005, 0.015, 0.025, 0.1, 0.7, 2.5, 5.0]))
    def wait(self, seconds: float) -> None:
        self.advance(seconds)

    @rule(away=SELDOM)
    def outage(self, away: bool) -> None:
        self.world.away = away

    @rule(frozen=SELDOM)
    def freeze(self, frozen: bool) -> None:
        self.world.freeze(frozen=frozen)

    @rule(count=st.integers(1, 2))
    def stick(self, count: int) -> None:
        self.world.sticking = count

    @rule()
    def unstick(self) -> None:
        self.world.unstick()

    @rule(count=st.integers(1, 3))
    def lose_answers(self, count: int) -> None:
        self.world.lost = count

    @rule(on=SELDOM)
    def maintenance(self, on: bool) -> None:
        (self.world.flags.add if on else self.world.flags.discard)(PUSHES_PAUSED)

    @rule(number=st.integers(0, 1))
    def crash(self, number: int) -> None:
        self.world.crash(self.world.processes[number])
        self.world.start()

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        for log in self.world.logs.values():
            assert len(set(log.payloads)) == len(log.payloads), log.payloads

    @invariant()
    def no_ack_counts_twice_or_overtakes_another(self) -> None:
        lane = self.world.lane
        assert len(set(lane.effects)) == len(lane.effects), lane.effects
        assert not lane.overtaken

    def teardown(self) -> None:
        try:
            self._heal()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self._clock.close()
            self.loop.close()
            asyncio.set_event_loop(None)

    def _heal(self) -> None:
        """End all faults, and check that every accepted message is stored in order."""
        world = self.world
        world.away, world.lost = False, 0
        world.freeze(frozen=False)
        world.unstick()
        world.flags.clear()
        give_up_at = self.loop.now + HEAL_SECONDS
        busy = (self.careful, self.plain, self.consumer)
        while any(one.busy for one in busy) or world.journal or any(one.open for one in world.backlogs.values()):
            assert self.loop.now < give_up_at, "something waits for ever"
            self.advance(0.5)
        for one in busy:
            if one.task is not None:
                one.task.result()
        self.advance(5.0)
        self.nothing_is_stored_twice()
        self.no_ack_counts_twice_or_overtakes_another()
        effects, said = world.lane.effects, self.consumer.said
        assert [one for one in effects if one[0] not in self.expired] == [
            one for one in said if one[0] not in self.expired
        ], "what was said under a lease that did not run out, in order"
        assert [one for one in said if one in effects] == effects, "nothing else"
        careful, plain = (world.logs[PARTITIONS[one]] for one in ("a", "b"))
        assert careful.payloads == list(range(self.careful.sent)), "all of it, in order"
        accepted = set(self.plain.accepted)
        assert [id for id, _ in plain.messages if id in accepted] == self.plain.accepted, "what was accepted, in order"


@pytest.mark.timeout(4 * 3600 if LONG else 300)
def test_what_is_accepted_is_applied_once_and_in_order_whatever_the_store_and_the_processes_do() -> None:
    chosen = int(os.environ.get(SEED) or secrets.randbits(32))
    limits: Any = settings(
        max_examples=5_000 if LONG else 250,
        stateful_step_count=60 if LONG else 30,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(seed(chosen)(DeferralMachine), settings=limits)
    except BaseException as error:
        error.add_note(f"{SEED}={chosen} repeats the search that found this.")
        raise
