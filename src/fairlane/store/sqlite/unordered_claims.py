"""Claims and redeliveries of an unordered lane: what consumers work on, and what comes again. Loaded once, changed in
memory, saved once."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

import apsw
import msgspec

from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.store import statements
from fairlane.store.sqlite.rows import rows

SQL = statements.load("fairlane.store.sqlite", "unordered.sql")
Span = tuple[int, int]
"""Positions from the first to below the second."""
LaneKey = tuple[int, int]
"""Partition and group."""


def claim(db: apsw.Connection, key: LaneKey, claims: Iterable[tuple[int, int, bytes, int]]) -> None:
    """Ranges that are in consumers' hands: first, upto, token, and when it ends."""
    made = [(low, high, token.hex(), ends_at) for low, high, token, ends_at in claims]
    db.execute(SQL["insert"], (*key, msgspec.json.encode(made).decode()))


def unclaim(db: apsw.Connection, key: LaneKey, starts: Sequence[int]) -> None:
    db.execute(SQL["delete"], (*key, msgspec.json.encode(starts).decode()))


def put_back(
    db: apsw.Connection, key: LaneKey, now: int, again: Sequence[tuple[int, int, str, int]], *, alone: bool = False
) -> None:
    """Messages that come again: position, 1 if that is charged, error, and when it is due."""
    db.execute(SQL["put_back"], (*key, now, int(alone), msgspec.json.encode(again).decode()))


def forget(db: apsw.Connection, key: LaneKey, positions: Sequence[int]) -> None:
    """Messages that had come again are over."""
    db.execute(SQL["forget"], (*key, msgspec.json.encode(positions).decode()))


class Claims:
    """Claims of a lane, and its redeliveries. A redelivery is a message with a row of its own in `failures`: with a
    token it is out, otherwise it is due some time. Known is what lies inside `span`, and what the tokens hold besides.
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
        self._again: dict[int, tuple[int, int, str, int]] = {}
        self._gone: list[int] = []
        self._made: set[int] = set()
        self._over: set[int] = set()

    def holds(self, token: bytes) -> bool:
        return self._claimed[token] > 0

    def take(self, since: int, upto: int, token: bytes | None) -> tuple[list[Span], list[Span]]:
        """Of these positions, what the token holds, which is nobody's from now on, and what is open besides. Without
        a token all of it is the caller's."""
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
        """Take a span out of the claim at `index`; where the claims behind it begin."""
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
        """How many attempts of a message failed, of which there is a row or that was taken out of a claim."""
        return self._attempts.get(position, 0)

    def put_back(self, position: int, *, charge: bool, error: str, due_at: int) -> None:
        """A message that was taken comes again."""
        if position in self._again:
            self._write_back()
        self._again[position] = position, int(charge), error[:ERROR_CHARS_MAX], due_at
        self._attempts[position] = self.attempts(position) + charge
        self._redeliveries[position] = None, due_at
        self._over.discard(position)

    def give_up(self, position: int) -> None:
        """What was put back is over after all; its row is there until all is saved."""
        self._write_back()
        self._redeliveries.pop(position, None)
        self._over.add(position)

    def give_back(self, token: bytes) -> None:
        """What the token holds comes again at once, without charge."""
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
