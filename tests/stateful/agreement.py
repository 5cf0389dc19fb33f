"""Invariants that hold after every step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis.stateful import invariant

from fairlane.model.group import LaneState
from fairlane.store.contract.values import DeadFilter
from fairlane.wire.dead_letters import DeadLetter
from tests.stateful.model import NEVER, Lane, Queue
from tests.stateful.transactions import Transactions


class Agreement(Transactions):
    tick = 0
    """Microseconds that the clock moves after each step."""

    @invariant()
    def broker_and_model_agree(self) -> None:
        seen = self.run(self._look())
        for name, model in self.models.items():
            depth, letters, *groups = next(seen)
            assert depth == model.depth()
            self._same_dead_letters(letters, model)
            for (group, lanes), states in zip(model.groups.items(), groups, strict=True):
                known = {state.name: state for state in states if state.head}
                assert known.keys() == lanes.keys()
                for partition, lane in lanes.items():
                    self._same_lane(known[partition], lane)
                    self._conserved(known[partition], lane)
                    self._one_holder((name, group, partition), known[partition])
        self.clock.at += self.tick

    async def _look(self) -> Iterator[Any]:
        """Return for each queue its depth, its dead letters, and the lanes of each group."""
        calls = [
            asyncio.gather(
                self.broker.queues.depth(name),
                self.broker.dead_letters.page(name, DeadFilter()),
                *(self.broker.groups.lanes(name, group) for group in model.groups),
            )
            for name, model in self.models.items()
        ]
        return iter(await asyncio.gather(*calls))

    def _same_lane(self, state: LaneState, lane: Lane) -> None:
        live = lane.ends_at > self.now
        assert state == LaneState(
            partition=state.partition,
            name=state.name,
            start=0,
            head=len(lane.log),
            committed=lane.committed,
            leased_until=lane.upto if live else None,
            lease_ends_at=lane.ends_at if live else None,
            ready_at=None if lane.ready_at == NEVER else lane.ready_at,
            attempts=lane.tries(lane.committed),
            error=lane.failures.get(lane.committed, (0, None))[1],
            dead=lane.gave_up,
            last_at=lane.log[-1].created_at if lane.log else state.last_at,
            skipped=sum(at >= max(lane.committed, lane.upto if live else 0) for at in lane.ahead),
            oldest_at=lane.log[lane.committed].created_at if lane.committed < len(lane.log) else None,
        )

    def _conserved(self, state: LaneState, lane: Lane) -> None:
        """Check stored = finished + dead + leased + waiting.

        The model has the first two, the broker reports the others.
        """
        reach = max(state.committed, state.leased_until or 0)
        finished = lane.fates.count("acked") + lane.fates.count("skipped")
        leased, waiting = reach - state.committed, state.head - reach - state.skipped
        ended = finished + lane.fates.count("dead") + state.skipped
        assert state.head - state.start == ended + leased + waiting

    def _one_holder(self, key: tuple[str, str, str], state: LaneState) -> None:
        """Check that at most one of the unreturned leases is live, and that it is the lane's."""
        live = [ends_at for ends_at in self.leases.get(key, {}).values() if ends_at > self.now]
        assert live == ([] if state.lease_ends_at is None else [state.lease_ends_at])

    def _same_dead_letters(self, letters: Sequence[DeadLetter], model: Queue) -> None:
        times = [letter.failed_at for letter in letters]
        assert times == sorted(times, reverse=True)
        shown = [
            (
                (le.group, le.partition, le.position),
                (le.error, le.attempts, le.failed_at, le.replayed_at is not None),
            )
            for le in letters
        ]
        assert sorted(shown) == sorted(
            ((group, partition, position), letter)
            for group, lanes in model.groups.items()
            for partition, lane in lanes.items()
            for position, letter in lane.letters.items()
        )
