"""Ack of unordered lanes: each message for itself."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import AckResult, Dead, Nack, UnorderedAck
from fairlane.store.sqlite import lanes
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.sqlite.unordered import UnorderedLane, load, save
from fairlane.store.sqlite.unordered_claims import Claims, Span


def ack_unordered(db: apsw.Connection, now: int, acks: Sequence[UnorderedAck]) -> list[AckResult]:
    """All that is said of one lane, one after the other."""
    partition, group_id = acks[0].partition, acks[0].group_id
    loaded = load(db, partition.id, group_id) if partition.shard == 0 else None
    if loaded is None:
        return [AckResult("gone")] * len(acks)
    lane, options = loaded
    tokens = {ack.token.bytes for ack in acks if ack.token is not None}
    claims = Claims(db, (lane.partition_id, lane.group_id), now, _bounds(acks), tokens)
    acking = [_Acking(db, now, lane, options, claims) for _ in acks]
    for one, ack in zip(acking, acks, strict=True):
        one.apply(ack)
    acked = [one.acked() for one in acking]
    claims.save()
    save(db, lane, options)
    return acked


def _bounds(acks: Sequence[UnorderedAck]) -> Span:
    """Between which positions all of it is."""
    spans = [span for ack in acks for span in ack.done]
    for ack in acks:
        spans += [(nack.position, nack.position + 1) for nack in ack.nacks]
        spans += [(dead.position, dead.position + 1) for dead in ack.dead_letters]
    return min([since for since, _ in spans], default=0), max([upto for _, upto in spans], default=0)


class _Acking:
    """One ack of a lane, under one token."""

    def __init__(
        self, db: apsw.Connection, now: int, lane: UnorderedLane, options: QueueOptions, claims: Claims
    ) -> None:
        self._db = db
        self._now = now
        self._lane = lane
        self._options = options
        self._claims = claims
        self._token: bytes | None = None
        self._finished: list[int] = []
        self._lost: list[int] = []
        self._died: list[int] = []
        self._applied = self._again = 0

    def apply(self, ack: UnorderedAck) -> None:
        lane = self._lane
        self._token = token = ack.token.bytes if ack.token else None
        for since, upto in ack.done:
            lane.over += self._take(since, upto)
        self._again = sum(map(self._nack, ack.nacks))
        for dead in ack.dead_letters:
            if self._take(dead.position, dead.position + 1):
                self._dead_letter(dead, charge=1)
        if ack.release and token is not None:
            self._claims.give_back(token)
        if ack.results:
            self._keep_results(ack)

    def acked(self) -> AckResult:
        """What came of it, when all that is said of the lane was applied."""
        lane, token = self._lane, self._token
        lost = not self._applied and bool(self._lost)
        over = token is not None and not self._claims.holds(token)
        return AckResult(
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
        spans, others = self._claims.take(since, upto, self._token)
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
        attempts = self._claims.attempts(nack.position) + nack.charge
        delay_ms = nack.delay_ms
        if delay_ms is None:
            delay_ms = lanes.backoff_ms(self._options, attempts) if nack.charge else 0
        due_at = self._now + delay_ms * 1000
        self._claims.put_back(nack.position, charge=nack.charge, error=nack.error, due_at=due_at)
        if nack.charge and attempts > self._options.retry_limit:
            self._dead_letter(Dead(nack.position, nack.error), charge=0)
            return False
        return True

    def _dead_letter(self, dead: Dead, *, charge: int) -> None:
        self._claims.give_up(dead.position)
        lanes.dead_letter(self._db, self._lane, dead.position, self._now, error=dead.error, charge=charge)
        self._lane.over.append((dead.position, dead.position + 1))
        self._died.append(dead.position)

    def _keep_results(self, ack: UnorderedAck) -> None:
        refused = {*self._lost, *self._finished}
        results = [
            (self._lane.partition_id, self._lane.group_id, position, self._now, result)
            for position, result in ack.results
            if position not in refused
        ]
        self._db.executemany(LOG["insert_result"], results)
