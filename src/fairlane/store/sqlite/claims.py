"""Unordered lanes: many consumers share one. A claim takes a range and moves on at once; what failed, timed out or was
given back is a row of `failures` that is due some time, and is handed out before what is new."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Final
from uuid import UUID

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT, POP_BYTES_MAX
from fairlane.model.outcome import RenewOutcome
from fairlane.model.queue import QueueOptions
from fairlane.store import statements
from fairlane.store.sqlite import lanes, log
from fairlane.store.sqlite.lanes import ADD_DEPTH, LEASE_EXPIRED, LaneRow, parse_options
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.values import Claim, Lane, Leased, PopCall, PopResult, Renewal

SQL = statements.load("fairlane.store.sqlite", "claims.sql")
LANES_MAX: Final = 1_000  # looked at for one call, however many its claims may take


class SharedLane(LaneRow):
    """A lane of an unordered queue. `over` are ranges that it finished since it was loaded."""

    claimed: int = 0
    start: int = 0
    over: list[tuple[int, int]] = msgspec.field(default_factory=list)

    @property
    def front(self) -> int:
        """Positions from here on were never handed out."""
        return max(self.committed, self.claimed)


def load(db: apsw.Connection, partition_id: int, group_id: int) -> tuple[SharedLane, QueueOptions] | None:
    row = first(db, SQL["lane"], partition_id, group_id)
    return (SharedLane(*row[:-1]), parse_options(row[-1])) if row else None


def save(db: apsw.Connection, lane: SharedLane, options: QueueOptions) -> None:
    key = (lane.partition_id, lane.group_id)
    db.execute(SQL["save"], (*key, lane.front, lane.ready_at, lane.failing, lane.dead))
    if options.max_size and lane.over:
        db.execute(ADD_DEPTH, (-_freed(db, lane), lane.queue_id))


def _freed(db: apsw.Connection, lane: SharedLane) -> int:
    """How many of the finished messages no other group has open."""
    fronts = [at for (at,) in rows(db, SQL["others"], lane.partition_id, lane.group_id)]
    if not fronts:
        return sum(upto - since for since, upto in lane.over)
    below = min(fronts)
    over = {position for since, upto in lane.over for position in range(since, min(upto, below))}
    key = (lane.partition_id, lane.group_id)
    for since, upto in rows(db, SQL["others_claims"], *key, *key):
        over -= set(range(since, upto))
    return len(over)


def open_of(db: apsw.Connection, of: str, ids: str) -> dict[int, int]:
    """Messages that every group of some queues or partitions was handed and some group has not finished, by id."""
    counts: dict[int, int] = defaultdict(int)
    last = reached = 0
    for id, partition_id, since, upto in rows(db, SQL[f"open_of_{of}"], ids):
        if partition_id != last:
            last, reached = partition_id, 0
        counts[id] += max(0, upto - max(since, reached))
        reached = max(reached, upto)
    return counts


def take_back(db: apsw.Connection, lane: SharedLane, now: int, *, forgiving: bool) -> None:
    """What ran out is due again, each message by itself; of each lost batch the first message is charged."""
    key = (lane.partition_id, lane.group_id)
    charged: set[bytes] = set()
    lost = rows(db, SQL["ran_out"], *key, now)
    for token, since, upto in lost:
        for position in range(since, upto):
            charge = not forgiving and token not in charged
            charged.add(token)
            db.execute(SQL["put_back"], (*key, position, int(charge), LEASE_EXPIRED, now, now, int(not forgiving)))
    if lost:
        db.execute(SQL["drop_ran_out"], (*key, now))


def withdraw(db: apsw.Connection, partition_id: int, position: int) -> None:
    """Take a message that was deleted out of every claim."""
    for group_id, since, upto, token, ends_at in rows(db, SQL["holding"], partition_id, position):
        db.execute(SQL["delete"], (partition_id, group_id, since))
        pieces = [(a, b) for a, b in ((since, position), (position + 1, upto)) if a < b]
        db.executemany(SQL["insert"], [(partition_id, group_id, *piece, token, ends_at) for piece in pieces])


def settle_down(db: apsw.Connection, partition_id: int) -> None:
    """Move the cursors of a partition to the first message that is still open."""
    for (group_id,) in rows(db, SQL["groups_of"], partition_id):
        loaded = load(db, partition_id, group_id)
        if loaded is not None:
            save(db, *loaded)


class _Want(msgspec.Struct):
    """What a claim may still get."""

    claim: Claim
    messages: int
    partitions: int
    lanes: list[Lane]
    bytes: int = POP_BYTES_MAX

    @property
    def open(self) -> bool:
        return self.messages > 0 and self.bytes > 0 and self.partitions > 0


def pop(db: apsw.Connection, now: int, call: PopCall, options: QueueOptions) -> PopResult:
    wants = [_Want(claim, claim.batch, claim.partitions, []) for claim in call.claims]
    taking = _Taking(db, now, call, options)
    taking.run(deque(want for want in wants if want.open))
    found = [want.lanes for want in wants]
    only = call.partition.id if call.partition else None
    return PopResult(
        found, next_at=None if all(found) else value(db, SQL["next_at"], call.group_id, only, now, NEVER_AT)
    )


class _Taking:
    def __init__(self, db: apsw.Connection, now: int, call: PopCall, options: QueueOptions) -> None:
        self._db = db
        self._now = now
        self._call = call
        self._options = options
        seconds = options.lease_seconds if call.lease_seconds is None else call.lease_seconds
        self._ends_at = now + seconds * 1_000_000

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
            if again:
                take_back(self._db, lane, self._now, forgiving=self._call.forgiving)
            while wants and self._serve(lane, wants[0], again=again):
                wants.popleft()
            lane.ready_at = self._now - lane.boost if lane.front < lane.head else None
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

    def _serve(self, lane: SharedLane, want: _Want, *, again: bool) -> bool:
        """Give a claim what the lane has for it; whether the claim is satisfied, so that the next one may come."""
        before = len(want.lanes)
        if again:
            self._again(lane, want)
        if want.open:
            self._fresh(lane, want)
        if want.open and len(want.lanes) > before:
            want.partitions -= 1
        return not want.open

    def _again(self, lane: SharedLane, want: _Want) -> None:
        """Messages that are due again, oldest first."""
        key = (lane.partition_id, lane.group_id)
        for position, attempts, alone in rows(self._db, SQL["due"], *key, self._now, want.messages):
            if position < lane.start:
                self._db.execute(SQL["forget"], (*key, position))
            elif attempts > self._options.retry_limit:
                lanes.bury(self._db, lane, position, self._now, error=None)
                self._finish(lane, position)
            elif not (alone and want.lanes) and want.open:
                self._hand_out(lane, want, position, attempts)
                if alone:
                    want.messages = 0
                    return

    def _hand_out(self, lane: SharedLane, want: _Want, position: int, attempts: int) -> None:
        if self._call.auto_ack:
            self._finish(lane, position)
        else:
            key = (lane.partition_id, lane.group_id, position)
            self._db.execute(SQL["hand_out"], (want.claim.token.bytes, self._ends_at, *key))
        self._give(lane, want, (position, position + 1), attempts)

    def _finish(self, lane: SharedLane, position: int) -> None:
        self._db.execute(SQL["forget"], (lane.partition_id, lane.group_id, position))
        lane.over.append((position, position + 1))

    def _fresh(self, lane: SharedLane, want: _Want) -> None:
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
            row = (lane.partition_id, lane.group_id, since, upto, want.claim.token.bytes, self._ends_at)
            self._db.execute(SQL["insert"], row)

    def _step_over(self, lane: SharedLane) -> None:
        """Pass messages that are not delivered; those that this group gave up on are finished now."""
        since = position = lane.front
        while position < lane.head and lanes.next_skip(self._db, lane, position) == position:
            position += 1
        given_up = rows(self._db, SQL["own_skips"], lane.partition_id, since, position, lane.group_id)
        lane.over += [(at, at + 1) for (at,) in given_up]
        self._db.execute(log.SQL["drop_skips"], (lane.partition_id, lane.group_id, position))
        lane.claimed = position
        lane.failing = value(self._db, SQL["skip_ahead"], lane.partition_id, position, lane.group_id)

    def _give(self, lane: SharedLane, want: _Want, span: tuple[int, int], attempts: int) -> int:
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


def renew(db: apsw.Connection, now: int, renewal: Renewal) -> RenewOutcome:
    values = (now + renewal.seconds * 1_000_000, renewal.lease.group_id, now, renewal.lease.token.bytes)
    held = rows(db, SQL["renew_claims"], *values) + rows(db, SQL["renew_singles"], *values)
    return RenewOutcome(len({id for id, _ in held}), min((at for _, at in held), default=None))


def leased(db: apsw.Connection, now: int, group_id: int, token: UUID) -> list[Leased]:
    found = rows(db, SQL["of_lease"], group_id, now, token.bytes)
    return [Leased(PartitionId(0, id), *rest) for id, *rest in found]


def release(db: apsw.Connection, now: int, group_id: int, token: UUID, only: int | None) -> int:
    """Give back what a live lease holds, without charge; of how many lanes."""
    held = [one for one in leased(db, now, group_id, token) if only is None or one.partition.id == only]
    for one in held:
        for position in range(one.first, one.upto):
            db.execute(SQL["put_back"], (one.partition.id, group_id, position, 0, "released", now, now, 0))
        db.execute(SQL["delete"], (one.partition.id, group_id, one.first))
    return len({one.partition for one in held})
