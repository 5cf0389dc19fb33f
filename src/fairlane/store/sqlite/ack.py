"""Acks on SQLite: move cursors, end leases and dead-letter messages.

In unordered lanes each message is finished on its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import AckResult, LaneAck, Nack, Span, ToDeadLetter
from fairlane.store.sqlite import unordered
from fairlane.store.sqlite.cancellations import noted
from fairlane.store.sqlite.groups import SQL as GROUPS
from fairlane.store.sqlite.groups import seed_partition
from fairlane.store.sqlite.lanes import (
    LaneRow,
    advance,
    backoff_ms,
    dead_letter,
    fail,
    next_skip,
    parse_options,
    save,
    step_over,
)
from fairlane.store.sqlite.log import SQL
from fairlane.store.sqlite.rows import first, rows, value

_GONE = AckResult("gone")


def ack_all(db: apsw.Connection, now: int, acks: Sequence[LaneAck]) -> list[AckResult]:
    """Apply acks like `ack_one`. Acks of one unordered lane are applied together."""
    by_lane: dict[tuple[PartitionId, int], list[int]] = defaultdict(list)
    acked: list[AckResult] = []
    for index, ack in enumerate(acks):
        if ack.unordered:
            by_lane[ack.partition, ack.group_id].append(index)
        acked.append(_GONE if ack.unordered else ack_one(db, now, ack))
    for indexes in by_lane.values():
        for index, result in zip(indexes, ack_unordered(db, now, [acks[index] for index in indexes]), strict=True):
            acked[index] = result
    # Nearly every ack finishes messages that nobody finished before, so none of them was cancelled.
    usual = [
        result.state == "ok"
        and not (result.finished or result.lost)
        and (
            ack.unordered
            or (
                not (ack.nacks or ack.dead_letters)
                and (not ack.done or (ack.done[0][1] - 1 if ack.cumulative else ack.done[0][0]) >= result.before)
            )
        )
        for ack, result in zip(acks, acked, strict=True)
    ]
    return acked if all(usual) else noted(db, acks, acked)


def ack_one(db: apsw.Connection, now: int, ack: LaneAck, *, waited: bool = False) -> AckResult:
    """Apply one ack. `waited` is True if it is the next pending ack of its lane."""
    if ack.unordered:
        return ack_unordered(db, now, [ack])[0]
    partition_id = ack.partition.number if ack.partition.cell == 0 else -1  # `partition.id`, without a call
    found: list[Any] = db.execute(SQL["lane"], (partition_id, ack.group_id)).fetchall()
    if not found:
        group = first(db, GROUPS["by_id"], ack.group_id)
        if group is not None and group[-1]:
            seed_partition(db, group[1], partition_id, now)
            found = rows(db, SQL["lane"], partition_id, ack.group_id)
    if not found:
        return _GONE
    lane, options = LaneRow(*found[0][:-1]), parse_options(found[0][-1])
    if lane.open_acks and not waited:
        return AckResult("operations_ahead")
    before, lease = lane.committed, lane.lease if lane.ready_at is not None and now < lane.ready_at else None
    if ack.token is not None and lease != ack.token.bytes:
        plain = not ack.nacks and not ack.dead_letters
        repeated = ack.token.bytes == lane.last_lease and plain and not _any_open(db, lane, ack)
        return AckResult("lost", before=before, after=before, repeated=repeated)
    if (
        lease is None
        or len(ack.done) != 1
        or ack.done[0][0] > before
        or lane.failing
        or options.max_size
        or ack.nacks
        or ack.dead_letters
        or ack.results
    ):
        return _LaneAcking(db, now, lane, options, max(before, lane.lease_end or 0)).apply(ack)
    # The common case: a lease, everything in order and completed. Only the cursor moves.
    limit = lane.lease_end or 0
    after = max(before, min(ack.done[0][1], limit))
    released = before < limit <= after
    if released:
        ready_at = now - lane.priority_lead if after < lane.head else None
        db.execute(SQL["end_lease"], (after, ready_at, partition_id, ack.group_id))
    elif after > before:
        db.execute(SQL["move_cursor"], (after, partition_id, ack.group_id))
    return AckResult("ok", before=before, after=after, released=released, limit=max(before, limit))


def _any_open(db: apsw.Connection, lane: LaneRow, ack: LaneAck) -> bool:
    """Return True if the ack finishes a message that is not finished yet."""
    spans = [(max(first, lane.committed), upto) for first, upto in ack.done]
    count = SQL["skips_between"]
    return any(upto - first > value(db, count, lane.partition_id, first, upto, lane.group_id) for first, upto in spans)


class _LaneAcking(msgspec.Struct):
    """One ack of an ordered lane."""

    db: apsw.Connection
    now: int
    lane: LaneRow
    options: QueueOptions
    limit: int
    """Position after the last delivered message. Without a lease, too, later messages cannot be finished."""

    def apply(self, ack: LaneAck) -> AckResult:
        lane, before, limit = self.lane, self.lane.committed, self.limit
        live_lease = lane.lease if lane.ready_at is not None and self.now < lane.ready_at else None
        nack = ack.nacks[0] if ack.nacks else None
        if nack is not None and not before <= nack.position < limit:
            nack = None
        stop = limit if nack is None else nack.position
        spans = [(max(first, before), min(upto, stop)) for first, upto in ack.done]
        finished = self._finished_ahead()
        if nack is not None and nack.position in finished:
            nack = None
        self._dead_letter(ack, before, stop)
        if ack.done and ack.done[0][0] <= before:
            advance(self.db, lane, spans[0][1], self.options)
        ahead = self._finish_ahead(spans)
        if nack is not None and nack.position > lane.committed:
            # Pass messages that are finished ahead of the cursor and before the failed one.
            step_over(self.db, lane, self.options)
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
            save(self.db, lane)
        return AckResult(
            "ok", before=before, after=lane.committed, dead=dead, released=released, limit=limit, finished=finished
        )

    def _finished_ahead(self) -> list[int]:
        """Return positions that are finished ahead of the cursor, by any consumer.

        At the cursor it can only be a message that was dead-lettered by hand. Its holder may still nack it, to release
        the lane.
        """
        lane = self.lane
        if not lane.failing:
            return []
        key = (lane.partition_id, lane.committed + 1, lane.head, lane.group_id)
        return [position for (position,) in rows(self.db, unordered.SQL["own_skips"], *key)]

    def _release_if_done(self) -> None:
        lane = self.lane
        # A lane that slept without a lease becomes ready, because its message is finished.
        if lane.lease is None or lane.committed >= self.limit:
            lane.make_ready(self.now)

    def _finish_ahead(self, spans: list[Span]) -> bool:
        """Mark positions as finished ahead of the cursor, so that no pop delivers them. Returns True if any were."""
        lane = self.lane
        keys = [
            (lane.partition_id, lane.group_id, position)
            for first, upto in spans
            for position in range(max(first, lane.committed), upto)
        ]
        if keys:
            self.db.executemany(SQL["forget_failure"], keys)
            self.db.executemany(SQL["finish_ahead"], [(*key, self.now) for key in keys])
            lane.failing = 1
        return bool(keys)

    def _pass_finished(self) -> None:
        """Move the cursor past positions that were finished ahead of it."""
        lane = self.lane
        if step_over(self.db, lane, self.options) and lane.committed >= lane.head:
            lane.ready_at = None

    def _dead_letter(self, ack: LaneAck, before: int, stop: int) -> None:
        for item in ack.dead_letters:
            if before <= item.position < stop and next_skip(self.db, self.lane, item.position) != item.position:
                dead_letter(
                    self.db, self.lane, item.position, self.now, error=item.error, charge=1, traceback=item.traceback
                )

    def _nack(self, nack: Nack) -> bool:
        """End the lease. Returns True if the message was dead-lettered."""
        lane, attempts, limit = self.lane, 0, None
        if nack.charge:
            attempts, limit = fail(self.db, lane, nack.position, nack.error, self.now, nack.traceback)
        if attempts > (self.options.retry_limit if limit is None else limit):
            attempts = 0
            # If earlier messages are open, it is dead-lettered when the cursor reaches it.
            if nack.position == lane.committed and next_skip(self.db, lane, nack.position) != nack.position:
                if self.options.on_exhausted != "dead_letter":
                    lane.parked |= self.options.on_exhausted == "park"
                    lane.free(NEVER_AT)
                    return False
                dead_letter(self.db, lane, nack.position, self.now, error=nack.error, traceback=nack.traceback)
                advance(self.db, lane, nack.position + 1, self.options)
                lane.make_ready(self.now)
                return True
        delay_ms = nack.delay_ms if nack.delay_ms is not None else backoff_ms(self.options, attempts)
        if delay_ms:
            lane.free(self.now + delay_ms * 1000)
        else:
            lane.make_ready(self.now)
        return False

    def _keep_results(self, ack: LaneAck, spans: list[Span], finished: list[int]) -> None:
        if not ack.results:
            return
        lane = self.lane
        results = [
            (lane.partition_id, lane.group_id, position, self.now, result)
            for position, result in ack.results
            if position not in finished and any(first <= position < upto for first, upto in spans)
        ]
        self.db.executemany(SQL["insert_result"], results)


def ack_unordered(db: apsw.Connection, now: int, acks: Sequence[LaneAck]) -> list[AckResult]:
    """Apply all acks of one unordered lane, in order."""
    partition, group_id = acks[0].partition, acks[0].group_id
    loaded = unordered.load(db, partition.id, group_id)
    if loaded is None:
        return [_GONE] * len(acks)
    lane, options = loaded
    tokens = {ack.token.bytes for ack in acks if ack.token is not None}
    claims = unordered.Claims(db, (lane.partition_id, lane.group_id), now, _bounds(acks), tokens)
    holders = [ack.token.bytes if ack.token else None for ack in acks]
    acking = [_UnorderedAcking(db, now, lane, options, claims, token) for token in holders]
    for one, ack in zip(acking, acks, strict=True):
        one.apply(ack)
    acked = [one.acked() for one in acking]
    claims.save()
    unordered.save(db, lane, options)
    return acked


def _bounds(acks: Sequence[LaneAck]) -> Span:
    """Return the span of all positions in the acks."""
    spans = [span for ack in acks for span in ack.done]
    for ack in acks:
        spans += [(nack.position, nack.position + 1) for nack in ack.nacks]
        spans += [(dead.position, dead.position + 1) for dead in ack.dead_letters]
    return min([since for since, _ in spans], default=0), max([upto for _, upto in spans], default=0)


class _UnorderedAcking(msgspec.Struct):
    """One ack of an unordered lane, with one token."""

    db: apsw.Connection
    now: int
    lane: unordered.UnorderedLane
    options: QueueOptions
    claims: unordered.Claims
    token: bytes | None
    finished: list[int] = []
    lost: list[int] = []
    died: list[int] = []
    applied: int = 0
    again: int = 0

    def apply(self, ack: LaneAck) -> None:
        lane, token = self.lane, self.token
        for since, upto in ack.done:
            lane.over += self._take(since, upto)
        self.again = sum(map(self._nack, ack.nacks))
        for dead in ack.dead_letters:
            if self._take(dead.position, dead.position + 1):
                self._dead_letter(dead, charge=1)
        if ack.release and token is not None:
            self.claims.release(token)
        if ack.results:
            self._keep_results(ack)

    def acked(self) -> AckResult:
        """Return the result, after all acks of the lane were applied."""
        lane, token = self.lane, self.token
        lost = not self.applied and bool(self.lost)
        over = token is not None and not self.claims.holds(token)
        return AckResult(
            "lost" if lost else "ok",
            before=lane.committed,
            after=lane.committed,
            released=not lost and (over or self.again > 0),
            finished=self.finished,
            lost=self.lost,
            died=self.died,
        )

    def _take(self, since: int, upto: int) -> list[Span]:
        """Return the spans that the caller holds of these positions, and record the others."""
        spans, others = self.claims.take(since, upto, self.token)
        taken = sum([high - low for low, high in spans])
        self.applied += taken
        if taken < upto - since:
            mine = {position for span in spans for position in range(*span)}
            open_elsewhere = {position for span in others for position in range(*span)}
            for position in range(since, upto):
                if position in open_elsewhere or position >= self.lane.front:
                    self.lost.append(position)
                elif position not in mine:
                    self.finished.append(position)
        return spans

    def _nack(self, nack: Nack) -> bool:
        """Apply a nack to a message. Returns True if it will be delivered again."""
        if not self._take(nack.position, nack.position + 1):
            return False
        attempts = self.claims.attempts(nack.position) + nack.charge
        delay_ms = nack.delay_ms
        if delay_ms is None:
            delay_ms = backoff_ms(self.options, attempts) if nack.charge else 0
        due_at = self.now + delay_ms * 1000
        limit = self.claims.put_back(
            nack.position, charge=nack.charge, error=nack.error, due_at=due_at, traceback=nack.traceback
        )
        if nack.charge and attempts > (self.options.retry_limit if limit is None else limit):
            self._dead_letter(ToDeadLetter(nack.position, nack.error, nack.traceback), charge=0)
            return False
        return True

    def _dead_letter(self, dead: ToDeadLetter, *, charge: int) -> None:
        self.claims.finish_redelivery(dead.position)
        dead_letter(
            self.db, self.lane, dead.position, self.now, error=dead.error, charge=charge, traceback=dead.traceback
        )
        self.lane.over.append((dead.position, dead.position + 1))
        self.died.append(dead.position)

    def _keep_results(self, ack: LaneAck) -> None:
        refused = {*self.lost, *self.finished}
        results = [
            (self.lane.partition_id, self.lane.group_id, position, self.now, result)
            for position, result in ack.results
            if position not in refused
        ]
        self.db.executemany(SQL["insert_result"], results)
