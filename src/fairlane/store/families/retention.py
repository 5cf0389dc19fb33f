"""Retention: deletes what a queue's rules cover, and nothing else.

With `retention_enabled`: messages `retention_seconds` old, unless they are in a live lease (cursors that stand
before them are moved), and messages `completed_retention_seconds` old that every group has finished. Dead letters
by `dead_letter_retention_seconds` alone. An empty partition that was not written to for IDLE_SECONDS goes, with
its cursors, unless it has dead letters or state. Ids of messages that went may be pushed anew."""

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
"""Steps that delete rows of the log in one; others have their turn in between, and the leader shows that it lives."""
_MINUTE: Final = 60_000_000
T = TypeVar("T")


class Retention(Family):
    def __init__(self, runner: QueryRunner, browse: Browse) -> None:
        super().__init__(runner)
        self._browse = browse
        self._surveyed = 0
        self._letters: list[tuple[int, int]] = []
        """Queues with a rule for dead letters, and its seconds."""

    async def due(self) -> bool:
        """Whether any queue has a rule or had one lately: otherwise a step would find nothing."""
        return bool(value(await self._runner.read("retention.due")))

    async def step(self, token: int, *, limit: int = 50) -> RetentionStep:
        """Look at up to `limit` partitions that are due and delete what may go. LeaseLost unless the token is that of
        the leader of RETENTION. What it costs depends on what is due, not on how many partitions there are."""
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
        """Do work as the leader: nobody else can become it before this is committed."""

        async def fenced(transaction: DatabaseTransaction) -> T:
            if not await transaction.run("retention.fence", token=token):
                raise LeaseLost("another broker leads retention now, or may")
            return await work(transaction)

        return await self._runner.transact(fenced)

    async def _survey(self, transaction: DatabaseTransaction) -> list[tuple[int, int]]:
        """Find queues whose rules changed; those with a rule for dead letters, with its seconds."""
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
        """What went in this time, oldest first; kept for HISTORY_SECONDS."""
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
