"""Unordered lanes, from which many consumers take messages at once.

A batch in progress is a row of `claims`. A message that failed, timed out or was released is a row of `failures` with
its due time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from uuid import UUID

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.outcome import RenewOutcome
from fairlane.model.queue import QueueOptions
from fairlane.store import statements
from fairlane.store.contract.values import Leased, Renewal, Span
from fairlane.store.sqlite.lanes import ADD_DEPTH, LEASE_EXPIRED, LaneRow, parse_options
from fairlane.store.sqlite.log import SQL as LANES
from fairlane.store.sqlite.log import own_retry_limit
from fairlane.store.sqlite.rows import first, rows, value

SQL = statements.load("fairlane.store.sqlite", "unordered.sql")
LaneKey = tuple[int, int]
"""The key of a lane: its partition and its group."""
Again = tuple[int, int, str, str | None, int, int | None]
"""A message to deliver again: position, 1 if an attempt is charged, error, traceback or None, due time, and its own
retry limit or None.
"""


class UnorderedLane(LaneRow):
    """A lane of an unordered queue. `over` has the ranges that were finished since it was loaded."""

    claimed: int = 0
    start: int = 0
    over: list[tuple[int, int]] = msgspec.field(default_factory=list)

    @property
    def front(self) -> int:
        """Return the first position that was never delivered."""
        return max(self.committed, self.claimed)


def load(db: apsw.Connection, partition_id: int, group_id: int) -> tuple[UnorderedLane, QueueOptions] | None:
    row = first(db, SQL["lane"], partition_id, group_id)
    return (UnorderedLane(*row[:-1]), parse_options(row[-1])) if row else None


def save(db: apsw.Connection, lane: UnorderedLane, options: QueueOptions) -> None:
    key = (lane.partition_id, lane.group_id)
    db.execute(SQL["save"], (*key, lane.front, lane.ready_at, lane.failing, lane.dead, lane.leased_at))
    if options.max_size and lane.over:
        db.execute(ADD_DEPTH, (-_freed(db, lane), lane.queue_id))


def _freed(db: apsw.Connection, lane: UnorderedLane) -> int:
    """Return the number of finished messages that no other counting group has open."""
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
    """Return the delivered but unfinished messages of queues or partitions, by id."""
    counts: dict[int, int] = defaultdict(int)
    last = reached = 0
    for id, partition_id, since, upto in rows(db, SQL[f"open_of_{of}"], ids):
        if partition_id != last:
            last, reached = partition_id, 0
        counts[id] += max(0, upto - max(since, reached))
        reached = max(reached, upto)
    return counts


def release_expired(db: apsw.Connection, lane: UnorderedLane, now: int, *, forgiving: bool) -> int:
    """Make messages of expired leases deliverable again, one by one.

    The first message of each lost batch is charged an attempt. Returns the number of lost batches.
    """
    key = (lane.partition_id, lane.group_id)
    charged: set[bytes] = set()
    again: list[Again] = []
    for token, since, upto in rows(db, SQL["ran_out"], *key, now):
        for position in range(since, upto):
            charge = not forgiving and token not in charged
            charged.add(token)
            limit = own_retry_limit(db, lane.partition_id, position) if charge else None
            again.append((position, int(charge), LEASE_EXPIRED, None, now, limit))
    if again:
        put_back(db, key, now, again, alone=not forgiving)
        db.execute(SQL["drop_ran_out"], (*key, now))
    return 0 if forgiving else len(charged)


def withdraw(db: apsw.Connection, partition_id: int, position: int) -> None:
    """Remove a deleted message from every claim."""
    for group_id, since, upto, token, ends_at in rows(db, SQL["holding"], partition_id, position):
        unclaim(db, (partition_id, group_id), [since])
        pieces = [(a, b) for a, b in ((since, position), (position + 1, upto)) if a < b]
        claim(db, (partition_id, group_id), [(*piece, token, ends_at) for piece in pieces])


def advance_cursors(db: apsw.Connection, partition_id: int) -> None:
    """Move each cursor of a partition to its first open message."""
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
    return [Leased(PartitionId.of(id), *rest) for id, *rest in found]


def release(db: apsw.Connection, now: int, group_id: int, token: UUID, only: int | None) -> int:
    """Release a live lease without counting an attempt. Returns the number of lanes."""
    released = [one for one in leased(db, now, group_id, token) if only is None or one.partition.id == only]
    for one in released:
        key = (one.partition.id, group_id)
        put_back(db, key, now, [(position, 0, "released", None, now, None) for position in range(one.first, one.upto)])
        unclaim(db, key, [one.first])
    return len({one.partition for one in released})


def claim(db: apsw.Connection, key: LaneKey, claims: Iterable[tuple[int, int, bytes, int]]) -> None:
    """Store claimed ranges: first, upto, token, and end time."""
    made = [(low, high, token.hex(), ends_at) for low, high, token, ends_at in claims]
    db.execute(SQL["insert"], (*key, msgspec.json.encode(made).decode()))


def unclaim(db: apsw.Connection, key: LaneKey, starts: Sequence[int]) -> None:
    db.execute(SQL["delete"], (*key, msgspec.json.encode(starts).decode()))


def put_back(db: apsw.Connection, key: LaneKey, now: int, again: Sequence[Again], *, alone: bool = False) -> None:
    """Store messages to deliver again."""
    db.execute(SQL["put_back"], (*key, now, int(alone), msgspec.json.encode(again).decode()))


def forget(db: apsw.Connection, key: LaneKey, positions: Sequence[int]) -> None:
    """Delete the rows of redelivered messages that are finished."""
    db.execute(SQL["forget"], (*key, msgspec.json.encode(positions).decode()))


class Claims:
    """Claims of a lane, and its redeliveries.

    A redelivery is a message with its own row in `failures`. With a token it is claimed, otherwise it has a due time.
    The rows inside `span` are loaded, plus rows that the tokens hold outside it.
    """

    def __init__(self, db: apsw.Connection, key: LaneKey, now: int, span: Span, tokens: Iterable[bytes]) -> None:
        self._db = db
        self._key = key
        self._now = now
        holders = msgspec.json.encode([token.hex() for token in tokens]).decode()
        claims = rows(db, SQL["claims_of"], *key, *span, holders)
        self._starts = [low for low, _, _, _ in claims]
        self._claims = {low: (high, token, ends_at) for low, high, token, ends_at in claims}
        redeliveries = rows(db, SQL["redeliveries_of"], *key, *span, holders)
        self._redeliveries = {position: (token, ends_at) for position, token, ends_at, _ in redeliveries}
        self._attempts: dict[int, int] = {position: attempts for position, _, _, attempts in redeliveries}
        self._claimed = Counter([token for _, _, token, _ in claims])
        self._claimed.update([token for _, token, _, _ in redeliveries if token is not None])
        self._again: dict[int, Again] = {}
        self._gone: list[int] = []
        self._made: set[int] = set()
        self._over: set[int] = set()

    def holds(self, token: bytes) -> bool:
        return self._claimed[token] > 0

    def take(self, since: int, upto: int, token: bytes | None) -> tuple[list[Span], list[Span]]:
        """Take positions out of the claims. Returns the spans that the token held, and other open ones.

        Without a token all of them count as the caller's.
        """
        now = self._now
        mine: list[Span] = []
        others: list[Span] = []
        index = max(0, bisect_right(self._starts, since) - 1)
        while index < len(self._starts) and (low := self._starts[index]) < upto:
            high, holder, ends_at = self._claims[low]
            index += 1
            if high <= since:
                continue
            span = max(low, since), min(high, upto)
            if token is not None and (holder != token or ends_at <= now):
                others.append(span)
                continue
            mine.append(span)
            index = self._cut(index - 1, span)
        for position in self._redeliveries_in(since, upto):
            holder, ends_at = self._redeliveries[position]
            if token is not None and (holder != token or ends_at <= now):
                others.append((position, position + 1))
                continue
            mine.append((position, position + 1))
            del self._redeliveries[position]
            self._over.add(position)
            if holder is not None:
                self._claimed[holder] -= 1
        return mine, others

    def _cut(self, index: int, span: Span) -> int:
        """Remove a span from the claim at `index`. Returns the index after it."""
        low = self._starts[index]
        high, holder, ends_at = self._claims.pop(low)
        pieces = [(a, b) for a, b in ((low, span[0]), (span[1], high)) if a < b]
        self._starts[index : index + 1] = [a for a, _ in pieces]
        self._claimed[holder] += len(pieces) - 1
        if low in self._made:
            self._made.remove(low)
        else:
            self._gone.append(low)
        for a, b in pieces:
            self._claims[a] = b, holder, ends_at
            self._made.add(a)
        return index + len(pieces)

    def _redeliveries_in(self, since: int, upto: int) -> list[int]:
        if upto - since < len(self._redeliveries):
            return [position for position in range(since, upto) if position in self._redeliveries]
        return [position for position in self._redeliveries if since <= position < upto]

    def attempts(self, position: int) -> int:
        """Return the number of failed attempts of a message."""
        return self._attempts.get(position, 0)

    def put_back(
        self, position: int, *, charge: bool, error: str, due_at: int, traceback: str | None = None
    ) -> int | None:
        """Put a taken message back. Returns its own retry limit if it is charged, else None."""
        if position in self._again:
            self._write_back()
        limit = own_retry_limit(self._db, self._key[0], position) if charge else None
        self._again[position] = position, int(charge), error[:ERROR_CHARS_MAX], traceback, due_at, limit
        self._attempts[position] = self.attempts(position) + charge
        self._redeliveries[position] = None, due_at
        self._over.discard(position)
        return limit

    def finish_redelivery(self, position: int) -> None:
        """Finish a message that was put back. Its row stays until the claims are saved."""
        self._write_back()
        self._redeliveries.pop(position, None)
        self._over.add(position)

    def release(self, token: bytes) -> None:
        """Put back everything the token holds, ready at once and without counting an attempt."""
        spans = [(low, high) for low, (high, holder, _) in self._claims.items() if holder == token]
        spans += [(position, position + 1) for position, (holder, _) in self._redeliveries.items() if holder == token]
        for since, upto in spans:
            for low, high in self.take(since, upto, token)[0]:
                for position in range(low, high):
                    self.put_back(position, charge=False, error="released", due_at=self._now)

    def _write_back(self) -> None:
        if self._again:
            put_back(self._db, self._key, self._now, list(self._again.values()))
            self._again.clear()

    def save(self) -> None:
        if self._gone:
            unclaim(self._db, self._key, self._gone)
        if self._made:
            claim(self._db, self._key, [(low, *self._claims[low]) for low in self._made])
        self._write_back()
        if self._over:
            forget(self._db, self._key, list(self._over))
