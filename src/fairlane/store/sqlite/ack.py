"""Ack of ordered lanes: moving cursors, ending leases, dead-lettering."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import apsw

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import AckResult, LaneAck, Nack, OrderedAck, UnorderedAck
from fairlane.store.sqlite.lanes import (
    LaneRow,
    advance,
    backoff_ms,
    dead_letter,
    fail,
    load,
    next_skip,
    save,
    step_over,
)
from fairlane.store.sqlite.log import SQL
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.sqlite.seeding import SQL as GROUPS
from fairlane.store.sqlite.seeding import seed_partition
from fairlane.store.sqlite.unordered_ack import ack_unordered
from fairlane.store.sqlite.unordered_claims import SQL as CLAIMS
from fairlane.store.sqlite.unordered_claims import Span


def ack_all(db: apsw.Connection, now: int, acks: Sequence[LaneAck]) -> list[AckResult]:
    """Each as `ack_one` does; what is said of one unordered lane is settled together."""
    if not any(isinstance(ack, UnorderedAck) for ack in acks):
        return [ack_one(db, now, ack) for ack in acks]
    acked: dict[int, AckResult] = {}
    by_lane: dict[tuple[PartitionId, int], dict[int, UnorderedAck]] = defaultdict(dict)
    for index, ack in enumerate(acks):
        if isinstance(ack, UnorderedAck):
            by_lane[ack.partition, ack.group_id][index] = ack
        else:
            acked[index] = ack_one(db, now, ack)
    for some in by_lane.values():
        acked.update(zip(some, ack_unordered(db, now, list(some.values())), strict=True))
    return [acked[index] for index in range(len(acks))]


def ack_one(db: apsw.Connection, now: int, ack: LaneAck, *, waited: bool = False) -> AckResult:
    """`waited`: it is the next of its lane's acks that wait."""
    if isinstance(ack, UnorderedAck):
        return ack_unordered(db, now, [ack])[0]
    loaded = _load(db, now, ack)
    if loaded is None:
        return AckResult("gone")
    lane, options = loaded
    if lane.open_acks and not waited:
        return AckResult("operations_ahead")
    token = ack.token.bytes if ack.token else None
    before = lane.committed
    if token is not None and not (lane.lease == token and lane.ready_at is not None and now < lane.ready_at):
        plain = ack.nack is None and not ack.dead_letters
        repeated = token == lane.last_lease and plain and not _any_open(db, lane, ack)
        return AckResult("lost", before=before, after=before, repeated=repeated)
    return _Acking(db, now, lane, options).apply(ack)


def _load(db: apsw.Connection, now: int, ack: OrderedAck) -> tuple[LaneRow, QueueOptions] | None:
    partition, group_id = ack.partition, ack.group_id
    if partition.shard != 0:
        return None
    loaded = load(db, partition.id, group_id)
    if loaded is None:
        group = first(db, GROUPS["by_id"], group_id)
        if group is not None and group[-1]:
            seed_partition(db, group[1], partition.id, now)
            loaded = load(db, partition.id, group_id)
    return loaded


def _any_open(db: apsw.Connection, lane: LaneRow, ack: OrderedAck) -> bool:
    """Whether something that the ack finishes is not finished yet."""
    spans = [(max(first, lane.committed), upto) for first, upto in ack.done]
    count = SQL["skips_between"]
    return any(upto - first > value(db, count, lane.partition_id, first, upto, lane.group_id) for first, upto in spans)


class _Acking:
    """One ack of a lane that it may change."""

    def __init__(self, db: apsw.Connection, now: int, lane: LaneRow, options: QueueOptions) -> None:
        self._db = db
        self._now = now
        self._lane = lane
        self._options = options
        # What was given to the last holder, and to nobody else, may be finished; without a lease too.
        self._limit = max(lane.committed, lane.lease_end or 0)

    def apply(self, ack: OrderedAck) -> AckResult:
        lane, before, limit = self._lane, self._lane.committed, self._limit
        live_lease = lane.lease if lane.ready_at is not None and self._now < lane.ready_at else None
        nack = ack.nack
        if nack is not None and not before <= nack.position < limit:
            nack = None
        stop = limit if nack is None else nack.position
        spans = [(max(first, before), min(upto, stop)) for first, upto in ack.done]
        finished = self._finished_ahead()
        if nack is not None and nack.position in finished:
            nack = None
        self._dead_letter(ack, before, stop)
        if ack.first <= before:
            advance(self._db, lane, spans[0][1], self._options)
        ahead = self._finish_ahead(spans)
        dead = self._nack(nack) if nack is not None else False
        if lane.failing:
            self._pass_finished()
        if nack is None and lane.committed > before:
            self._release_if_done()
        self._keep_results(ack, spans, finished)
        released = live_lease is not None and lane.lease is None
        if released:
            lane.last_lease = live_lease
        if nack is not None or ahead or ack.dead_letters or lane.committed > before:
            save(self._db, lane)
        return AckResult(
            "ok", before=before, after=lane.committed, dead=dead, released=released, limit=limit, finished=finished
        )

    def _finished_ahead(self) -> list[int]:
        """Whoever was given it. At the cursor that could only be a message that was dead-lettered by hand: who holds
        it may still fail it, and so let go of the lane."""
        lane = self._lane
        if not lane.failing:
            return []
        key = (lane.partition_id, lane.committed + 1, lane.head, lane.group_id)
        return [position for (position,) in rows(self._db, CLAIMS["own_skips"], *key)]

    def _release_if_done(self) -> None:
        lane = self._lane
        # A lane that slept without a lease is awake again: what it slept for is finished.
        if lane.lease is None or lane.committed >= self._limit:
            lane.offer(self._now)

    def _finish_ahead(self, spans: list[Span]) -> bool:
        """Mark what is finished behind the cursor, so that no pop delivers it; whether there is some."""
        lane = self._lane
        keys = [
            (lane.partition_id, lane.group_id, position)
            for first, upto in spans
            for position in range(max(first, lane.committed), upto)
        ]
        if keys:
            self._db.executemany(SQL["forget_failure"], keys)
            self._db.executemany(SQL["finish_ahead"], [(*key, self._now) for key in keys])
            lane.failing = 1
        return bool(keys)

    def _pass_finished(self) -> None:
        """Move the cursor over what was finished ahead of it."""
        lane = self._lane
        if step_over(self._db, lane, self._options) and lane.committed >= lane.head:
            lane.ready_at = None

    def _dead_letter(self, ack: OrderedAck, before: int, stop: int) -> None:
        for item in ack.dead_letters:
            if before <= item.position < stop and next_skip(self._db, self._lane, item.position) != item.position:
                dead_letter(self._db, self._lane, item.position, self._now, error=item.error, charge=1)

    def _nack(self, nack: Nack) -> bool:
        """End the lease; whether the message was given up on."""
        lane, attempts = self._lane, 0
        if nack.charge:
            attempts = fail(self._db, lane, nack.position, nack.error, self._now)
        if attempts > self._options.retry_limit:
            attempts = 0
            # With messages before it still open, it falls when the cursor has reached it.
            if nack.position == lane.committed and next_skip(self._db, lane, nack.position) != nack.position:
                if self._options.on_exhausted != "dead_letter":
                    lane.parked |= self._options.on_exhausted == "park"
                    lane.free(NEVER_AT)
                    return False
                dead_letter(self._db, lane, nack.position, self._now, error=nack.error)
                advance(self._db, lane, nack.position + 1, self._options)
                lane.offer(self._now)
                return True
        delay_ms = nack.delay_ms if nack.delay_ms is not None else backoff_ms(self._options, attempts)
        if delay_ms:
            lane.free(self._now + delay_ms * 1000)
        else:
            lane.offer(self._now)
        return False

    def _keep_results(self, ack: OrderedAck, spans: list[Span], finished: list[int]) -> None:
        if not ack.results:
            return
        lane = self._lane
        results = [
            (lane.partition_id, lane.group_id, position, self._now, result)
            for position, result in ack.results
            if position not in finished and any(first <= position < upto for first, upto in spans)
        ]
        self._db.executemany(SQL["insert_result"], results)
