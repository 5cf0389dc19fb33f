"""Pop of unordered lanes: a claim takes due redeliveries and then a range of new messages."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import apsw
import msgspec

from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import PopCall, PopResult
from fairlane.store.sqlite import lanes
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.sqlite.log import PoppedLog, Popping, Want
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.sqlite.unordered import SQL, UnorderedLane, claim, forget, load, release_expired, save

LANES_MAX: Final = 1_000  # lanes checked in one call, however many its claims may take

Due = tuple[int, int, int, int | None]
"""Position, failed attempts, and a mark for messages that must be delivered alone."""


def pop(
    db: apsw.Connection, now: int, call: PopCall, options: QueueOptions, log: PoppedLog, wants: list[Want]
) -> PopResult:
    popping = _UnorderedPopping(db, now, call, options, log)
    popping.run(deque([want for want in wants if want.open]))
    found = [want.lanes for want in wants]
    only = call.partition.id if call.partition else None
    next_at = None if all(found) else value(db, SQL["next_at"], call.group_id, only, now, NEVER_AT)
    return PopResult(found, next_at=next_at, leases_lost=popping.leases_lost, dead=popping.dead)


class _UnorderedPopping(Popping):
    claims: list[tuple[int, int, bytes, int]] = msgspec.field(default_factory=list)
    redeliveries: list[tuple[Any, ...]] = msgspec.field(default_factory=list)

    def run(self, wants: deque[Want]) -> None:
        for partition_id, again in self._ready(sum(want.partitions for want in wants)):
            loaded = load(self.db, partition_id, self.call.group_id) if wants else None
            if loaded is None:
                continue
            lane = loaded[0]
            if lane.parked or lane.paused_at is not None:
                lane.ready_at = None if lane.ready_at is None else NEVER_AT
                save(self.db, lane, self.options)
                continue
            lane.leased_at = max(lane.leased_at or 0, self.now)  # a time ahead of the clock stays for repair_wakes
            plain = not (again or lane.failing or self.call.auto_ack)
            due = self._due(lane, sum(want.messages for want in wants)) if again else deque()
            while wants and self._serve(lane, wants[0], due):
                wants.popleft()
            self._write(lane)
            lane.ready_at = self.now - lane.priority_lead if lane.front < lane.head else None
            if plain:  # nothing was finished, so the cursor stays
                key = (lane.partition_id, lane.group_id)
                self.db.execute(SQL["save_front"], (*key, lane.front, lane.ready_at, lane.leased_at))
            else:
                save(self.db, lane, self.options)

    def _ready(self, limit: int) -> list[tuple[int, bool]]:
        """Return ready lanes, each with True if it may have due redeliveries."""
        partition = self.call.partition
        if partition is not None:
            return [(partition.id, True)]
        return rows(self.db, SQL["ready"], self.call.group_id, self.now, min(limit, LANES_MAX))

    def _due(self, lane: UnorderedLane, limit: int) -> deque[Due]:
        """Return due redeliveries, oldest first."""
        self.leases_lost += release_expired(self.db, lane, self.now, forgiving=self.call.forgiving)
        return deque(rows(self.db, SQL["due"], lane.partition_id, lane.group_id, self.now, limit))

    def _write(self, lane: UnorderedLane) -> None:
        """Write the claims of one lane."""
        if self.claims:
            claim(self.db, (lane.partition_id, lane.group_id), self.claims)
            self.claims.clear()
        if self.redeliveries:
            self.db.executemany(SQL["redeliver"], self.redeliveries)
            self.redeliveries.clear()

    def _serve(self, lane: UnorderedLane, want: Want, due: deque[Due]) -> bool:
        """Serve a claim from the lane. Returns True if it is satisfied, so that the next claim can be served."""
        before = len(want.lanes)
        if due:
            self._claim_redeliveries(lane, want, due)
        if want.open:
            self._claim_new(lane, want)
        if want.open and len(want.lanes) > before:
            want.partitions -= 1
        return not want.open

    def _claim_redeliveries(self, lane: UnorderedLane, want: Want, due: deque[Due]) -> None:
        """Claim redeliveries that are due. One that must come alone waits for a claim that is still empty."""
        left: list[Due] = []
        while due and want.open:
            position, attempts, alone, limit = one = due.popleft()
            if position < lane.start:
                forget(self.db, (lane.partition_id, lane.group_id), [position])
            elif attempts > (self.options.retry_limit if limit is None else limit):
                lanes.dead_letter(self.db, lane, position, self.now, error=None)
                self.dead += 1
                self._finish(lane, position)
            elif alone and want.lanes:
                left.append(one)
            else:
                self._redeliver(lane, want, position, attempts)
                if alone:
                    want.messages = 0
        due.extendleft(reversed(left))

    def _redeliver(self, lane: UnorderedLane, want: Want, position: int, attempts: int) -> None:
        if self.call.auto_ack:
            self._finish(lane, position)
        else:
            key = (lane.partition_id, lane.group_id, position)
            self.redeliveries.append((want.claim.token.bytes, want.ends_at, *key))
        want.deliver(self.log, lane.partition_id, lane.name, (position, position + 1), attempts)

    def _finish(self, lane: UnorderedLane, position: int) -> None:
        forget(self.db, (lane.partition_id, lane.group_id), [position])
        lane.over.append((position, position + 1))

    def _claim_new(self, lane: UnorderedLane, want: Want) -> None:
        """Claim a range of messages that were never delivered."""
        if lane.failing:
            self._skip_undeliverable(lane)
        since = lane.front
        if since >= lane.head:
            return
        skip = lanes.next_skip(self.db, lane, since)
        upto = min(lane.head if skip is None else skip, since + want.messages)
        lane.claimed = upto = want.deliver(self.log, lane.partition_id, lane.name, (since, upto), 0)
        if self.call.auto_ack:
            lane.over.append((since, upto))
        else:
            self.claims.append((since, upto, want.claim.token.bytes, want.ends_at))

    def _skip_undeliverable(self, lane: UnorderedLane) -> None:
        """Skip messages that are never delivered, and finish those that this group has dead-lettered."""
        since = position = lane.front
        while position < lane.head and lanes.next_skip(self.db, lane, position) == position:
            position += 1
        given_up = rows(self.db, SQL["own_skips"], lane.partition_id, since, position, lane.group_id)
        lane.over += [(at, at + 1) for (at,) in given_up]
        self.db.execute(LOG["drop_skips"], (lane.partition_id, lane.group_id, position))
        lane.claimed = position
        lane.failing = value(self.db, SQL["skip_ahead"], lane.partition_id, position, lane.group_id)
