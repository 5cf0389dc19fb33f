"""Pop of unordered lanes: a claim takes a range and moves on at once, after what is due again."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import apsw
import msgspec

from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import PopCall, PopResult
from fairlane.store.sqlite import lanes, log
from fairlane.store.sqlite.log import Popping, Want
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.sqlite.unordered import SQL, UnorderedLane, claim, forget, load, save, take_back

LANES_MAX: Final = 1_000  # looked at for one call, however many its claims may take

Due = tuple[int, int, int, int | None]
"""Position, failed attempts, and whether it comes alone."""


def pop(db: apsw.Connection, now: int, call: PopCall, options: QueueOptions, wants: list[Want]) -> PopResult:
    popping = _Popping(db, now, call, options)
    popping.run(deque([want for want in wants if want.open]))
    found = [want.lanes for want in wants]
    only = call.partition.id if call.partition else None
    next_at = None if all(found) else value(db, SQL["next_at"], call.group_id, only, now, NEVER_AT)
    return PopResult(found, next_at=next_at, leases_lost=popping.leases_lost, dead=popping.dead)


class _Popping(Popping):
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
            lane.leased_at = self.now
            plain = not (again or lane.failing or self.call.auto_ack)
            due = self._due(lane, sum(want.messages for want in wants)) if again else deque()
            while wants and self._serve(lane, wants[0], due):
                wants.popleft()
            self._write(lane)
            lane.ready_at = self.now - lane.priority_lead if lane.front < lane.head else None
            if plain:  # nothing was finished, so the cursor stays
                key = (lane.partition_id, lane.group_id)
                self.db.execute(SQL["save_front"], (*key, lane.front, lane.ready_at, self.now))
            else:
                save(self.db, lane, self.options)

    def _ready(self, limit: int) -> list[tuple[int, bool]]:
        """Lanes that have something, and whether some of it may be due again."""
        partition = self.call.partition
        if partition is not None:
            return [(partition.id, True)] if partition.shard == 0 else []
        return rows(self.db, SQL["ready"], self.call.group_id, self.now, min(limit, LANES_MAX))

    def _due(self, lane: UnorderedLane, limit: int) -> deque[Due]:
        """Messages that are due again, oldest first."""
        self.leases_lost += take_back(self.db, lane, self.now, forgiving=self.call.forgiving)
        return deque(rows(self.db, SQL["due"], lane.partition_id, lane.group_id, self.now, limit))

    def _write(self, lane: UnorderedLane) -> None:
        """What was handed out of one lane."""
        if self.claims:
            claim(self.db, (lane.partition_id, lane.group_id), self.claims)
            self.claims.clear()
        if self.redeliveries:
            self.db.executemany(SQL["redeliver"], self.redeliveries)
            self.redeliveries.clear()

    def _serve(self, lane: UnorderedLane, want: Want, due: deque[Due]) -> bool:
        """Give a claim what the lane has for it; whether the claim is satisfied, so that the next one may come."""
        before = len(want.lanes)
        if due:
            self._again(lane, want, due)
        if want.open:
            self._fresh(lane, want)
        if want.open and len(want.lanes) > before:
            want.partitions -= 1
        return not want.open

    def _again(self, lane: UnorderedLane, want: Want, due: deque[Due]) -> None:
        """Hand out what is due; what must come alone is left for a claim that has nothing yet."""
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
        want.give(self.db, lane.partition_id, lane.name, (position, position + 1), attempts)

    def _finish(self, lane: UnorderedLane, position: int) -> None:
        forget(self.db, (lane.partition_id, lane.group_id), [position])
        lane.over.append((position, position + 1))

    def _fresh(self, lane: UnorderedLane, want: Want) -> None:
        """A range of messages that were never handed out."""
        if lane.failing:
            self._step_over(lane)
        since = lane.front
        if since >= lane.head:
            return
        skip = lanes.next_skip(self.db, lane, since)
        upto = min(lane.head if skip is None else skip, since + want.messages)
        lane.claimed = upto = want.give(self.db, lane.partition_id, lane.name, (since, upto), 0)
        if self.call.auto_ack:
            lane.over.append((since, upto))
        else:
            self.claims.append((since, upto, want.claim.token.bytes, want.ends_at))

    def _step_over(self, lane: UnorderedLane) -> None:
        """Pass messages that are not delivered; those that this group gave up on are finished now."""
        since = position = lane.front
        while position < lane.head and lanes.next_skip(self.db, lane, position) == position:
            position += 1
        given_up = rows(self.db, SQL["own_skips"], lane.partition_id, since, position, lane.group_id)
        lane.over += [(at, at + 1) for (at,) in given_up]
        self.db.execute(log.SQL["drop_skips"], (lane.partition_id, lane.group_id, position))
        lane.claimed = position
        lane.failing = value(self.db, SQL["skip_ahead"], lane.partition_id, position, lane.group_id)
