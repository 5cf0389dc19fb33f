"""Settling messages of unordered lanes, each for itself."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from fairlane.model.queue import QueueOptions
from fairlane.store.sqlite import lanes
from fairlane.store.sqlite.claims import SharedLane, load, save
from fairlane.store.sqlite.hands import Hands, Span
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.values import Dead, Nack, Settled, Verdicts


def judge(db: apsw.Connection, now: int, said: Sequence[Verdicts]) -> list[Settled]:
    """All that is said of one lane, one after the other."""
    partition, group_id = said[0].partition, said[0].group_id
    loaded = load(db, partition.id, group_id) if partition.shard == 0 else None
    if loaded is None:
        return [Settled("gone")] * len(said)
    lane, options = loaded
    tokens = {verdicts.token.bytes for verdicts in said if verdicts.token is not None}
    hands = Hands(db, (lane.partition_id, lane.group_id), now, _bounds(said), tokens)
    judged = [_Judging(db, now, lane, options, hands) for _ in said]
    for judging, verdicts in zip(judged, said, strict=True):
        judging.apply(verdicts)
    settled = [judging.settled() for judging in judged]
    hands.save()
    save(db, lane, options)
    return settled


def _bounds(said: Sequence[Verdicts]) -> Span:
    """Between which positions all of it is."""
    spans = [span for verdicts in said for span in verdicts.done]
    for verdicts in said:
        spans += [(nack.position, nack.position + 1) for nack in verdicts.nacks]
        spans += [(dead.position, dead.position + 1) for dead in verdicts.dead_letters]
    return min([since for since, _ in spans], default=0), max([upto for _, upto in spans], default=0)


class _Judging:
    """What one call says of a lane under one token."""

    def __init__(self, db: apsw.Connection, now: int, lane: SharedLane, options: QueueOptions, hands: Hands) -> None:
        self._db = db
        self._now = now
        self._lane = lane
        self._options = options
        self._hands = hands
        self._token: bytes | None = None
        self._finished: list[int] = []
        self._lost: list[int] = []
        self._died: list[int] = []
        self._applied = self._again = 0

    def apply(self, verdicts: Verdicts) -> None:
        lane = self._lane
        self._token = token = verdicts.token.bytes if verdicts.token else None
        for since, upto in verdicts.done:
            lane.over += self._take(since, upto)
        self._again = sum(map(self._nack, verdicts.nacks))
        for dead in verdicts.dead_letters:
            if self._take(dead.position, dead.position + 1):
                self._dead_letter(dead, charge=1)
        if verdicts.release and token is not None:
            self._hands.give_back(token)
        if verdicts.results:
            self._keep_results(verdicts)

    def settled(self) -> Settled:
        """What came of it, when all that is said of the lane was applied."""
        lane, token = self._lane, self._token
        lost = not self._applied and bool(self._lost)
        over = token is not None and not self._hands.holds(token)
        return Settled(
            "lost" if lost else "ok",
            before=lane.committed,
            after=lane.committed,
            released=not lost and (over or self._again > 0),
            finished=self._finished,
            lost=self._lost,
            died=self._died,
        )

    def _take(self, since: int, upto: int) -> list[Span]:
        """What the caller holds of these positions; the others are told apart."""
        spans, others = self._hands.take(since, upto, self._token)
        taken = sum([high - low for low, high in spans])
        self._applied += taken
        if taken < upto - since:
            mine = {position for span in spans for position in range(*span)}
            open_elsewhere = {position for span in others for position in range(*span)}
            for position in range(since, upto):
                if position in open_elsewhere or position >= self._lane.front:
                    self._lost.append(position)
                elif position not in mine:
                    self._finished.append(position)
        return spans

    def _nack(self, nack: Nack) -> bool:
        """Whether the message comes again."""
        if not self._take(nack.position, nack.position + 1):
            return False
        attempts = self._hands.attempts(nack.position) + nack.charge
        delay_ms = nack.delay_ms
        if delay_ms is None:
            delay_ms = lanes.backoff_ms(self._options, attempts) if nack.charge else 0
        due_at = self._now + delay_ms * 1000
        self._hands.put_back(nack.position, charge=nack.charge, error=nack.error, due_at=due_at)
        if nack.charge and attempts > self._options.retry_limit:
            self._dead_letter(Dead(nack.position, nack.error), charge=0)
            return False
        return True

    def _dead_letter(self, dead: Dead, *, charge: int) -> None:
        self._hands.give_up(dead.position)
        lanes.dead_letter(self._db, self._lane, dead.position, self._now, error=dead.error, charge=charge)
        self._lane.over.append((dead.position, dead.position + 1))
        self._died.append(dead.position)

    def _keep_results(self, verdicts: Verdicts) -> None:
        refused = {*self._lost, *self._finished}
        results = [
            (self._lane.partition_id, self._lane.group_id, position, self._now, result)
            for position, result in verdicts.results
            if position not in refused
        ]
        self._db.executemany(LOG["insert_result"], results)
