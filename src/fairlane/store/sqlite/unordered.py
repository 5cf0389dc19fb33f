"""Unordered lanes, of which many consumers take messages at once. A batch in work is a row of `claims`; what failed,
timed out or was given back is a row of `failures` that is due some time."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.outcome import RenewOutcome
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import Leased, Renewal
from fairlane.store.sqlite.lanes import ADD_DEPTH, LEASE_EXPIRED, LaneRow, parse_options
from fairlane.store.sqlite.log import SQL as LANES
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.sqlite.unordered_claims import SQL, claim, put_back, unclaim


class UnorderedLane(LaneRow):
    """A lane of an unordered queue. `over` are ranges that it finished since it was loaded."""

    claimed: int = 0
    start: int = 0
    over: list[tuple[int, int]] = msgspec.field(default_factory=list)

    @property
    def front(self) -> int:
        """Positions from here on were never handed out."""
        return max(self.committed, self.claimed)


def load(db: apsw.Connection, partition_id: int, group_id: int) -> tuple[UnorderedLane, QueueOptions] | None:
    row = first(db, SQL["lane"], partition_id, group_id)
    return (UnorderedLane(*row[:-1]), parse_options(row[-1])) if row else None


def save(db: apsw.Connection, lane: UnorderedLane, options: QueueOptions) -> None:
    key = (lane.partition_id, lane.group_id)
    db.execute(SQL["save"], (*key, lane.front, lane.ready_at, lane.failing, lane.dead))
    if options.max_size and lane.over:
        db.execute(ADD_DEPTH, (-_freed(db, lane), lane.queue_id))


def _freed(db: apsw.Connection, lane: UnorderedLane) -> int:
    """How many of the finished messages no other group has open, of those that count."""
    if not value(db, LANES["counts"], lane.group_id):
        return 0
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


def take_back(db: apsw.Connection, lane: UnorderedLane, now: int, *, forgiving: bool) -> int:
    """What ran out is due again, each message by itself; of each lost batch the first message is charged. How many
    were."""
    key = (lane.partition_id, lane.group_id)
    charged: set[bytes] = set()
    again: list[tuple[int, int, str, int]] = []
    for token, since, upto in rows(db, SQL["ran_out"], *key, now):
        for position in range(since, upto):
            charge = not forgiving and token not in charged
            charged.add(token)
            again.append((position, int(charge), LEASE_EXPIRED, now))
    if again:
        put_back(db, key, now, again, alone=not forgiving)
        db.execute(SQL["drop_ran_out"], (*key, now))
    return 0 if forgiving else len(charged)


def withdraw(db: apsw.Connection, partition_id: int, position: int) -> None:
    """Take a message that was deleted out of every claim."""
    for group_id, since, upto, token, ends_at in rows(db, SQL["holding"], partition_id, position):
        unclaim(db, (partition_id, group_id), [since])
        pieces = [(a, b) for a, b in ((since, position), (position + 1, upto)) if a < b]
        claim(db, (partition_id, group_id), [(*piece, token, ends_at) for piece in pieces])


def settle_down(db: apsw.Connection, partition_id: int) -> None:
    """Move the cursors of a partition to the first message that is still open."""
    for (group_id,) in rows(db, SQL["groups_of"], partition_id):
        loaded = load(db, partition_id, group_id)
        if loaded is not None:
            save(db, *loaded)


def renew(db: apsw.Connection, now: int, renewal: Renewal) -> RenewOutcome:
    values = (now + renewal.seconds * 1_000_000, renewal.lease.group_id, now, renewal.lease.token.bytes)
    renewed = rows(db, SQL["renew_claims"], *values) + rows(db, SQL["renew_redeliveries"], *values)
    return RenewOutcome(len({id for id, _ in renewed}), min((at for _, at in renewed), default=None))


def leased(db: apsw.Connection, now: int, group_id: int, token: UUID) -> list[Leased]:
    found = rows(db, SQL["of_lease"], group_id, now, token.bytes)
    return [Leased(PartitionId(0, id), *rest) for id, *rest in found]


def release(db: apsw.Connection, now: int, group_id: int, token: UUID, only: int | None) -> int:
    """Give back what a live lease holds, without charge; of how many lanes."""
    released = [one for one in leased(db, now, group_id, token) if only is None or one.partition.id == only]
    for one in released:
        key = (one.partition.id, group_id)
        put_back(db, key, now, [(position, 0, "released", now) for position in range(one.first, one.upto)])
        unclaim(db, key, [one.first])
    return len({one.partition for one in released})
