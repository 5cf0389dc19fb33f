"""What must hold after every step, whatever it was."""

from __future__ import annotations

from hypothesis.stateful import invariant

from fairlane.model.group import LaneState
from fairlane.store.values import DeadFilter
from tests.stateful.bundles import Bundles
from tests.stateful.model import NEVER, Lane, Queue


class Agreement(Bundles):
    tick = 0
    """How far the clock moves after each step."""

    @invariant()
    def broker_and_model_agree(self) -> None:
        for name, model in self.models.items():
            assert self.run(self.broker.depth(name)) == model.depth()
            self._same_dead_letters(name, model)
            for group, lanes in model.groups.items():
                states = {s.name: s for s in self.run(self.broker.lanes(name, group)) if s.head}
                assert states.keys() == lanes.keys()
                for partition, lane in lanes.items():
                    self._same_lane(states[partition], lane)
                    self._conserved(states[partition], lane)
                    self._one_holder((name, group, partition), states[partition])
        self.clock.at += self.tick

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
            oldest_at=lane.log[lane.committed].created_at if lane.committed < len(lane.log) else None,
        )

    def _conserved(self, state: LaneState, lane: Lane) -> None:
        """Stored = finished + dead + leased + waiting, the first two by the model, the others as told."""
        reach = max(state.committed, state.leased_until or 0)
        finished = lane.fates.count("acked") + lane.fates.count("skipped")
        leased, waiting = reach - state.committed, state.head - reach
        assert state.head - state.start == finished + lane.fates.count("dead") + leased + waiting

    def _one_holder(self, key: tuple[str, str, str], state: LaneState) -> None:
        """Of the leases handed out and not given back, at most one lives: the one that the lane tells of."""
        live = [ends_at for ends_at in self.leases.get(key, {}).values() if ends_at > self.now]
        assert live == ([] if state.lease_ends_at is None else [state.lease_ends_at])

    def _same_dead_letters(self, name: str, model: Queue) -> None:
        letters = self.run(self.broker.dead_letters(name, DeadFilter()))
        times = [letter.failed_at for letter in letters]
        assert times == sorted(times, reverse=True)
        told = [
            (
                (le.group, le.partition_name, le.position),
                (le.error, le.attempts, le.failed_at, le.replayed_at is not None),
            )
            for le in letters
        ]
        assert sorted(told) == sorted(
            ((group, partition, position), letter)
            for group, lanes in model.groups.items()
            for partition, lane in lanes.items()
            for position, letter in lane.letters.items()
        )
