"""Pop of unordered lanes: a claim takes a range and moves on at once, after what is due again."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import Claim, Lane, PopCall, PopResult, Span
from fairlane.store.sqlite import lanes, log
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.sqlite.unordered import SQL, UnorderedLane, claim, forget, load, save, take_back

LANES_MAX: Final = 1_000  # looked at for one call, however many its claims may take

Due = tuple[int, int, int]
"""Position, failed attempts, and whether it comes alone."""


class _Want(msgspec.Struct):
    """The rest that a claim may still get."""

    claim: Claim
    messages: int
    partitions: int
    lanes: list[Lane]
    bytes: int

    @property
    def open(self) -> bool:
        return self.messages > 0 and self.bytes > 0 and self.partitions > 0


def pop(db: apsw.Connection, now: int, call: PopCall, options: QueueOptions) -> PopResult:
    wants = [_Want(claim, claim.batch, claim.partitions, [], call.bytes_max) for claim in call.claims]
    popping = _Pop(db, now, call, options)
    popping.run(deque(want for want in wants if want.open))
    found = [want.lanes for want in wants]
    only = call.partition.id if call.partition else None
    next_at = None if all(found) else value(db, SQL["next_at"], call.group_id, only, now, NEVER_AT)
    return PopResult(found, next_at=next_at, leases_lost=popping.leases_lost, dead=popping.dead)


class _Pop:
    def __init__(self, db: apsw.Connection, now: int, call: PopCall, options: QueueOptions) -> None:
        self._db = db
        self._now = now
        self._call = call
        self._options = options
        seconds = options.lease_seconds if call.lease_seconds is None else call.lease_seconds
        self._ends_at = now + seconds * 1_000_000
        self._claims: list[tuple[int, int, bytes, int]] = []
        self._redeliveries: list[tuple[Any, ...]] = []
        self.leases_lost = self.dead = 0

    def run(self, wants: deque[_Want]) -> None:
        for partition_id, again in self._ready(sum(want.partitions for want in wants)):
            loaded = load(self._db, partition_id, self._call.group_id) if wants else None
            if loaded is None:
                continue
            lane = loaded[0]
            if lane.parked or lane.paused_at is not None:
                lane.ready_at = None if lane.ready_at is None else NEVER_AT
                save(self._db, lane, self._options)
                continue
            plain = not (again or lane.failing or self._call.auto_ack)
            due = self._due(lane, sum(want.messages for want in wants)) if again else deque()
            while wants and self._serve(lane, wants[0], due):
                wants.popleft()
            self._write(lane)
            lane.ready_at = self._now - lane.priority_lead if lane.front < lane.head else None
            if plain:  # nothing was finished, so the cursor stays
                key = (lane.partition_id, lane.group_id)
                self._db.execute(SQL["save_front"], (*key, lane.front, lane.ready_at))
            else:
                save(self._db, lane, self._options)

    def _ready(self, limit: int) -> list[tuple[int, bool]]:
        """Lanes that have something, and whether some of it may be due again."""
        partition = self._call.partition
        if partition is not None:
            return [(partition.id, True)] if partition.shard == 0 else []
        return rows(self._db, SQL["ready"], self._call.group_id, self._now, min(limit, LANES_MAX))

    def _due(self, lane: UnorderedLane, limit: int) -> deque[Due]:
        """Messages that are due again, oldest first."""
        self.leases_lost += take_back(self._db, lane, self._now, forgiving=self._call.forgiving)
        return deque(rows(self._db, SQL["due"], lane.partition_id, lane.group_id, self._now, limit))

    def _write(self, lane: UnorderedLane) -> None:
        """What was handed out of one lane."""
        if self._claims:
            claim(self._db, (lane.partition_id, lane.group_id), self._claims)
            self._claims.clear()
        if self._redeliveries:
            self._db.executemany(SQL["redeliver"], self._redeliveries)
            self._redeliveries.clear()

    def _serve(self, lane: UnorderedLane, want: _Want, due: deque[Due]) -> bool:
        """Give a claim what the lane has for it; whether the claim is satisfied, so that the next one may come."""
        before = len(want.lanes)
        if due:
            self._again(lane, want, due)
        if want.open:
            self._fresh(lane, want)
        if want.open and len(want.lanes) > before:
            want.partitions -= 1
        return not want.open

    def _again(self, lane: UnorderedLane, want: _Want, due: deque[Due]) -> None:
        """Hand out what is due; what must come alone is left for a claim that has nothing yet."""
        left: list[Due] = []
        while due and want.open:
            position, attempts, alone = one = due.popleft()
            if position < lane.start:
                forget(self._db, (lane.partition_id, lane.group_id), [position])
            elif attempts > self._options.retry_limit:
                lanes.dead_letter(self._db, lane, position, self._now, error=None)
                self.dead += 1
                self._finish(lane, position)
            elif alone and want.lanes:
                left.append(one)
            else:
                self._redeliver(lane, want, position, attempts)
                if alone:
                    want.messages = 0
        due.extendleft(reversed(left))

    def _redeliver(self, lane: UnorderedLane, want: _Want, position: int, attempts: int) -> None:
        if self._call.auto_ack:
            self._finish(lane, position)
        else:
            key = (lane.partition_id, lane.group_id, position)
            self._redeliveries.append((want.claim.token.bytes, self._ends_at, *key))
        self._give(lane, want, (position, position + 1), attempts)

    def _finish(self, lane: UnorderedLane, position: int) -> None:
        forget(self._db, (lane.partition_id, lane.group_id), [position])
        lane.over.append((position, position + 1))

    def _fresh(self, lane: UnorderedLane, want: _Want) -> None:
        """A range of messages that were never handed out."""
        if lane.failing:
            self._step_over(lane)
        since = lane.front
        if since >= lane.head:
            return
        skip = lanes.next_skip(self._db, lane, since)
        upto = min(lane.head if skip is None else skip, since + want.messages)
        lane.claimed = upto = self._give(lane, want, (since, upto), 0)
        if self._call.auto_ack:
            lane.over.append((since, upto))
        else:
            self._claims.append((since, upto, want.claim.token.bytes, self._ends_at))

    def _step_over(self, lane: UnorderedLane) -> None:
        """Pass messages that are not delivered; those that this group gave up on are finished now."""
        since = position = lane.front
        while position < lane.head and lanes.next_skip(self._db, lane, position) == position:
            position += 1
        given_up = rows(self._db, SQL["own_skips"], lane.partition_id, since, position, lane.group_id)
        lane.over += [(at, at + 1) for (at,) in given_up]
        self._db.execute(log.SQL["drop_skips"], (lane.partition_id, lane.group_id, position))
        lane.claimed = position
        lane.failing = value(self._db, SQL["skip_ahead"], lane.partition_id, position, lane.group_id)

    def _give(self, lane: UnorderedLane, want: _Want, span: Span, attempts: int) -> int:
        segments, upto, size = log.read_batch(self._db, lane.partition_id, *span, want.bytes)
        want.messages -= upto - span[0]
        want.bytes -= size
        want.lanes.append(
            Lane(
                partition=PartitionId(0, lane.partition_id),
                name=lane.name,
                first=span[0],
                upto=upto,
                attempts=attempts,
                lease_ends_at=self._ends_at,
                segments=segments,
            )
        )
        return upto
