"""Retention, which deletes expired messages, dead letters and idle partitions.

With `retention_enabled` it deletes messages that are `retention_seconds` old, and messages that are
`completed_retention_seconds` old and finished by every group. It keeps those in a live lease, and moves cursors that
are before the first message left.

Dead letters expire by `dead_letter_retention_seconds` only. An empty partition that got no message for IDLE_SECONDS is
deleted with its cursors, unless it has dead letters or state. The ids of deleted messages may be pushed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from fairlane.errors import LeaseLost
from fairlane.model.retention import HISTORY_SECONDS, PARTITION_HISTORY_SECONDS, Expired, Retained, RetentionStep
from fairlane.store.families.browse import YEAR_9999, Browse
from fairlane.store.families.query import (
    DatabaseTransaction,
    Family,
    QueryRunner,
    TransactionBody,
    Value,
    struct,
    value,
)

_COVER: Final = 1000
_LETTERS: Final = 500
_TRIMS: Final = 10
"""Trim steps in one retention step, so that other work gets its turn and the leader can renew its lead."""
_MINUTE: Final = 60_000_000
T = TypeVar("T")


class Retention(Family):
    def __init__(self, runner: QueryRunner, browse: Browse) -> None:
        super().__init__(runner)
        self._browse = browse
        self._surveyed = 0
        self._letters: list[tuple[int, int]] = []
        """Ids of queues with a rule for dead letters, and the seconds of the rule."""

    async def due(self) -> bool:
        """Return True if any queue has a rule or recently had one. Otherwise a step is a no-op."""
        return bool(value(await self._runner.read("retention.due")))

    async def step(self, token: int, *, limit: int = 50) -> RetentionStep:
        """Check up to `limit` partitions that are due and delete what has expired.

        Raises LeaseLost unless `token` belongs to the leader of RETENTION. The cost depends on the number of due
        partitions, not on the number of all partitions.
        """
        if token != self._surveyed:
            self._letters = await self._fenced(token, self._survey)
            self._surveyed = token
        more = await self._fenced(token, self._schedule_partitions)
        expired, checked = await self._fenced(token, partial(_expire_due, limit=limit))
        more = more or checked == limit
        for queue_id, seconds in self._letters:
            gone = await self._fenced(token, partial(_expire_letters, queue_id=queue_id, seconds=seconds))
            expired += [gone] if gone.messages else []
            more = more or gone.messages == _LETTERS
        return RetentionStep(expired, await self._browse.trim_some(_TRIMS) or more)

    async def _fenced(self, token: int, work: TransactionBody[T]) -> T:
        """Run a transaction as the leader. No other broker can become leader before it commits."""

        async def fenced(transaction: DatabaseTransaction) -> T:
            if not await transaction.run("retention.fence", token=token):
                raise LeaseLost("another broker leads retention now, or may")
            return await work(transaction)

        return await self._runner.transact(fenced)

    async def _survey(self, transaction: DatabaseTransaction) -> list[tuple[int, int]]:
        """Find queues whose rules changed. Returns those with a rule for dead letters, and the seconds of the rule."""
        await transaction.run("retention.rules_gone")
        await transaction.run("retention.rules_changed")
        await transaction.run("retention.forget_minutes", seconds=HISTORY_SECONDS)
        await transaction.run("retention.forget_hours", seconds=PARTITION_HISTORY_SECONDS)
        return [(id, seconds) for id, seconds in await transaction.run("retention.letters_ruled")]

    async def _schedule_partitions(self, transaction: DatabaseTransaction) -> bool:
        """Make some partitions of a queue whose rules changed due. Returns True if more may be left."""
        found = await transaction.run("retention.next_cover")
        for queue_id, after in found:
            last = value(await transaction.run("retention.cover", queue_id=queue_id, after=after, limit=_COVER))
            await transaction.run("retention.covered", queue_id=queue_id, after=last)
        return bool(found)

    async def history(self, queue_ids: Sequence[int], *, since: int, until: int) -> list[Retained]:
        """Return the deletions of a period, oldest first. They are kept for HISTORY_SECONDS."""
        bounds = {"since": since // _MINUTE * _MINUTE, "until": min(until, YEAR_9999)}
        rows = await self._runner.read("retention.history", queue_ids=queue_ids, **bounds)
        return [struct(Retained, row) for row in rows]


async def _expire_due(transaction: DatabaseTransaction, *, limit: int) -> tuple[list[Expired], int]:
    return await transaction.dialect.expire_messages(limit)


async def _expire_letters(transaction: DatabaseTransaction, *, queue_id: int, seconds: int) -> Expired:
    where: dict[str, Value] = {"queue_id": queue_id}
    rows = await transaction.run("retention.expire_letters", seconds=seconds, limit=_LETTERS, **where)
    letters = Counter(name for name, _ in rows)
    unread = Counter(name for name, replayed_at in rows if replayed_at is None)
    for name, count in letters.items():
        gone: dict[str, Value] = {"partition": name, "messages": count, "unread": unread[name]}
        await transaction.run("retention.record", rule="dead_letters", **where, **gone)
    return Expired(queue_id, "dead_letters", len(rows), unread.total())
