"""Settling lanes: moving cursors, ending leases, giving messages up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import apsw

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.store.sqlite.lanes import LaneRow, advance, backoff_ms, bury, fail, load, next_skip, save
from fairlane.store.sqlite.log import SQL
from fairlane.store.sqlite.rows import first
from fairlane.store.sqlite.seeding import SQL as GROUPS
from fairlane.store.sqlite.seeding import seed_partition
from fairlane.store.sqlite.verdicts import judge
from fairlane.store.values import Nack, Settled, Settlement, Verdicts


def settle_all(db: apsw.Connection, now: int, settlements: Sequence[Settlement | Verdicts]) -> list[Settled]:
    """Each as `settle` does; what is said of one unordered lane is settled together."""
    if not any(isinstance(settlement, Verdicts) for settlement in settlements):
        return [settle(db, now, settlement) for settlement in settlements]
    settled: dict[int, Settled] = {}
    shared: dict[tuple[PartitionId, int], dict[int, Verdicts]] = defaultdict(dict)
    for index, settlement in enumerate(settlements):
        if isinstance(settlement, Verdicts):
            shared[settlement.partition, settlement.group_id][index] = settlement
        else:
            settled[index] = settle(db, now, settlement)
    for said in shared.values():
        settled.update(zip(said, judge(db, now, list(said.values())), strict=True))
    return [settled[index] for index in range(len(settlements))]


def settle(db: apsw.Connection, now: int, settlement: Settlement | Verdicts, *, waited: bool = False) -> Settled:
    """`waited`: it is the next of its lane's acks that wait."""
    if isinstance(settlement, Verdicts):
        return judge(db, now, [settlement])[0]
    loaded = _load(db, now, settlement)
    if loaded is None:
        return Settled("gone")
    lane, options = loaded
    if lane.waiting and not waited:
        return Settled("behind")
    token = settlement.token.bytes if settlement.token else None
    before = lane.committed
    if token is not None and not (lane.lease == token and lane.ready_at is not None and now < lane.ready_at):
        finished = before >= settlement.upto and settlement.nack is None and not settlement.bury
        repeated = token == lane.last_lease and finished
        return Settled("lost", before=before, after=before, repeated=repeated)
    return _Settling(db, now, lane, options).apply(settlement)


def _load(db: apsw.Connection, now: int, settlement: Settlement) -> tuple[LaneRow, QueueOptions] | None:
    partition, group_id = settlement.partition, settlement.group_id
    if partition.shard != 0:
        return None
    loaded = load(db, partition.id, group_id)
    if loaded is None:
        group = first(db, GROUPS["by_id"], group_id)
        if group is not None and group[-1]:
            seed_partition(db, group[1], partition.id, now)
            loaded = load(db, partition.id, group_id)
    return loaded


class _Settling:
    """One settlement of a lane that it may change."""

    def __init__(self, db: apsw.Connection, now: int, lane: LaneRow, options: QueueOptions) -> None:
        self._db = db
        self._now = now
        self._lane = lane
        self._options = options

    def apply(self, settlement: Settlement) -> Settled:
        lane, before = self._lane, self._lane.committed
        held = lane.lease if lane.ready_at is not None and self._now < lane.ready_at else None
        limit = lane.head if settlement.token is None or lane.lease_end is None else lane.lease_end
        nack = settlement.nack
        if nack is not None and not before <= nack.position < limit:
            nack = None
        upto = max(before, min(settlement.upto, limit, limit if nack is None else nack.position))
        self._bury(settlement, before, upto)
        advance(self._db, lane, upto, self._options)
        dead = self._nack(nack) if nack is not None else False
        if nack is None and lane.committed > before:
            self._release_if_done()
        self._keep_results(settlement, before)
        released = held is not None and lane.lease is None
        if released:
            lane.last_lease = held
        if nack is not None or lane.committed > before:
            save(self._db, lane)
        return Settled("ok", before=before, after=lane.committed, dead=dead, released=released)

    def _release_if_done(self) -> None:
        lane = self._lane
        # A lane that slept without a lease is awake again: what it slept for is finished.
        if lane.lease_end is None or lane.committed >= lane.lease_end:
            lane.offer(self._now)

    def _bury(self, settlement: Settlement, before: int, upto: int) -> None:
        for item in settlement.bury:
            if before <= item.position < upto and next_skip(self._db, self._lane, item.position) != item.position:
                bury(self._db, self._lane, item.position, self._now, error=item.error, charge=1)

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
                bury(self._db, lane, nack.position, self._now, error=nack.error)
                advance(self._db, lane, nack.position + 1, self._options)
                lane.offer(self._now)
                return True
        delay_ms = nack.delay_ms if nack.delay_ms is not None else backoff_ms(self._options, attempts)
        if delay_ms:
            lane.free(self._now + delay_ms * 1000)
        else:
            lane.offer(self._now)
        return False

    def _keep_results(self, settlement: Settlement, before: int) -> None:
        if not settlement.results:
            return
        lane = self._lane
        kept = [
            (lane.partition_id, lane.group_id, position, self._now, result)
            for position, result in settlement.results
            if before <= position < lane.committed
        ]
        self._db.executemany(SQL["insert_result"], kept)
