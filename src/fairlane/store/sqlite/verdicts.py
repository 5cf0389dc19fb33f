"""Settling messages of unordered lanes, each for itself."""

from __future__ import annotations

import apsw

from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.queue import QueueOptions
from fairlane.store.sqlite import lanes
from fairlane.store.sqlite.claims import SQL, SharedLane, load, release, save
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.values import Bury, Nack, Settled, Verdicts


def judge(db: apsw.Connection, now: int, verdicts: Verdicts) -> Settled:
    loaded = load(db, verdicts.partition.id, verdicts.group_id) if verdicts.partition.shard == 0 else None
    if loaded is None:
        return Settled("gone")
    judging = _Judging(db, now, *loaded, verdicts)
    return judging.apply()


class _Judging:
    def __init__(
        self, db: apsw.Connection, now: int, lane: SharedLane, options: QueueOptions, verdicts: Verdicts
    ) -> None:
        self._db = db
        self._now = now
        self._lane = lane
        self._options = options
        self._verdicts = verdicts
        self._token = verdicts.token.bytes if verdicts.token else None
        self._key = (lane.partition_id, lane.group_id)
        self._finished: list[int] = []
        self._lost: list[int] = []
        self._died: list[int] = []
        self._applied = 0

    def apply(self) -> Settled:
        verdicts, lane, before = self._verdicts, self._lane, self._lane.committed
        for since, upto in verdicts.done:
            for span in self._take(since, upto):
                lane.over.append(span)
                self._db.execute(SQL["forget_range"], (*self._key, *span))
        again = sum(map(self._nack, verdicts.nacks))
        for bury in verdicts.bury:
            if self._take(bury.position, bury.position + 1):
                self._bury(bury, charge=1)
        if verdicts.release and verdicts.token is not None:
            release(self._db, self._now, lane.group_id, verdicts.token, lane.partition_id)
        self._keep_results()
        save(self._db, lane, self._options)
        lost = not self._applied and bool(self._lost)
        over = self._token is not None and not value(self._db, SQL["held"], *self._key, self._token)
        return Settled(
            "lost" if lost else "ok",
            before=before,
            after=before,
            released=not lost and (over or again > 0),
            finished=self._finished,
            lost=self._lost,
            died=self._died,
        )

    def _mine(self, token: bytes | None, ends_at: int) -> bool:
        return self._token is None or (token == self._token and ends_at > self._now)

    def _take(self, since: int, upto: int) -> list[tuple[int, int]]:
        """What the caller holds of these positions, taken out of its claims; the others are told apart."""
        spans: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        for low, high, token, ends_at in rows(self._db, SQL["between"], *self._key, upto, since):
            span = max(low, since), min(high, upto)
            if not self._mine(token, ends_at):
                others.append(span)
                continue
            spans.append(span)
            self._db.execute(SQL["delete"], (*self._key, low))
            pieces = [(a, b) for a, b in ((low, span[0]), (span[1], high)) if a < b]
            self._db.executemany(SQL["insert"], [(*self._key, *piece, token, ends_at) for piece in pieces])
        for position, token, due_at in rows(self._db, SQL["singles_between"], *self._key, upto, since):
            (spans if self._mine(token, due_at) else others).append((position, position + 1))
        taken = sum(b - a for a, b in spans)
        self._applied += taken
        if taken < upto - since:
            mine = {position for span in spans for position in range(*span)}
            open_elsewhere = {position for span in others for position in range(*span)}
            for position in range(since, upto):
                if position in open_elsewhere or position >= self._lane.front:
                    self._lost.append(position)
                elif position not in mine:
                    self._finished.append(position)
        return spans

    def _nack(self, nack: Nack) -> bool:
        """Whether the message comes again."""
        if not self._take(nack.position, nack.position + 1):
            return False
        delay_ms = nack.delay_ms or 0
        row = (*self._key, nack.position, int(nack.charge), nack.error[:ERROR_CHARS_MAX], self._now)
        attempts = value(self._db, SQL["put_back"], *row, self._now + delay_ms * 1000, 0)
        if nack.charge and attempts > self._options.retry_limit:
            self._bury(Bury(nack.position, nack.error), charge=0)
            return False
        if nack.charge and nack.delay_ms is None and self._options.retry_delay_ms:
            due_at = self._now + lanes.backoff_ms(self._options, attempts) * 1000
            self._db.execute(SQL["hand_out"], (None, due_at, *self._key, nack.position))
        return True

    def _bury(self, bury: Bury, *, charge: int) -> None:
        lanes.bury(self._db, self._lane, bury.position, self._now, error=bury.error, charge=charge)
        self._db.execute(SQL["forget"], (*self._key, bury.position))
        self._lane.over.append((bury.position, bury.position + 1))
        self._died.append(bury.position)

    def _keep_results(self) -> None:
        refused = {*self._lost, *self._finished}
        kept = [
            (*self._key, position, self._now, result)
            for position, result in self._verdicts.results
            if position not in refused
        ]
        self._db.executemany(LOG["insert_result"], kept)
