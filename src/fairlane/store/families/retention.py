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
from fairlane.model.retention import HISTORY_SECONDS, PARTITION_HISTORY_SECONDS, Expired, Retained, Step
from fairlane.store.families.browse import YEAR_9999, Browse
from fairlane.store.families.port import Family, Port, Row, Transaction, Value, Work, struct, value

_COVER: Final = 1000
_LETTERS: Final = 500
_TRIMS: Final = 10
"""Steps that delete rows of the log in one; others have their turn in between, and the leader shows that it lives."""
_MINUTE: Final = 60_000_000
T = TypeVar("T")


class Retention(Family):
    def __init__(self, port: Port, browse: Browse) -> None:
        super().__init__(port)
        self._browse = browse
        self._surveyed = 0
        self._letters: list[tuple[int, int]] = []
        """Queues with a rule for dead letters, and its seconds."""

    async def due(self) -> bool:
        """Whether any queue has a rule or had one lately: otherwise a step would find nothing."""
        return bool(value(await self._port.read("retention.due")))

    async def step(self, token: int, *, limit: int = 50) -> Step:
        """Look at up to `limit` partitions that are due and delete what may go. LeaseLost unless the token is that of
        the leader of RETENTION. What it costs depends on what is due, not on how many partitions there are."""
        if token != self._surveyed:
            self._letters = await self._fenced(token, self._survey)
            self._surveyed = token
        more = await self._fenced(token, self._cover)
        expired: list[Expired] = []
        for shard in self._port.shards:
            rows = await self._fenced(token, partial(_look, shard=shard, limit=limit))
            for queue_id, rule, messages, unread in rows:
                if rule == "looked":
                    more = more or messages == limit
                else:
                    expired.append(Expired(queue_id, rule, messages, unread))
            for queue_id, seconds in self._letters:
                work = partial(_expire_letters, shard=shard, queue_id=queue_id, seconds=seconds)
                gone = await self._fenced(token, work)
                expired += [gone] if gone.messages else []
                more = more or gone.messages == _LETTERS
        return Step(expired, await self._browse.trim_some(_TRIMS) or more)

    async def _fenced(self, token: int, work: Work[T]) -> T:
        """Do work as the leader: nobody else can become it before this is committed."""

        async def fenced(transaction: Transaction) -> T:
            if not await transaction.run("retention.fence", token=token):
                raise LeaseLost("another broker leads retention now, or may")
            return await work(transaction)

        return await self._port.transact(fenced)

    async def _survey(self, transaction: Transaction) -> list[tuple[int, int]]:
        """Find queues whose rules changed; those with a rule for dead letters, with its seconds."""
        await transaction.run("retention.rules_gone")
        await transaction.run("retention.rules_changed", shard=self._port.shards[0])
        for shard in self._port.shards:
            await transaction.run("retention.forget_minutes", shard=shard, seconds=HISTORY_SECONDS)
            await transaction.run("retention.forget_hours", shard=shard, seconds=PARTITION_HISTORY_SECONDS)
        return [(id, seconds) for id, seconds in await transaction.run("retention.letters_ruled")]

    async def _cover(self, transaction: Transaction) -> bool:
        """Let partitions of a queue whose rules changed be looked at, some of them; whether more may be left."""
        found = await transaction.run("retention.next_cover")
        for queue_id, shard, after in found:
            where: dict[str, Value] = {"shard": shard, "queue_id": queue_id}
            last = value(await transaction.run("retention.cover", after=after, limit=_COVER, **where))
            if last is None:
                shard = next((one for one in self._port.shards if one > shard), None)
            await transaction.run("retention.covered", **where | {"shard": shard, "after": last or ""})
        return bool(found)

    async def history(self, queue_ids: Sequence[int], *, since: int, until: int) -> list[Retained]:
        """What went in this time, oldest first; kept for HISTORY_SECONDS."""
        bounds = {"since": since // _MINUTE * _MINUTE, "until": min(until, YEAR_9999)}
        rows = await self._port.read("retention.history", shards=self._port.shards, queue_ids=queue_ids, **bounds)
        return [struct(Retained, row) for row in rows]


async def _look(transaction: Transaction, *, shard: int, limit: int) -> list[Row]:
    return await transaction.run("retention.expire", shard=shard, limit=limit)


async def _expire_letters(transaction: Transaction, *, shard: int, queue_id: int, seconds: int) -> Expired:
    where: dict[str, Value] = {"shard": shard, "queue_id": queue_id}
    rows = await transaction.run("retention.expire_letters", seconds=seconds, limit=_LETTERS, **where)
    letters = Counter(name for name, _ in rows)
    unread = Counter(name for name, replayed_at in rows if replayed_at is None)
    for name, count in letters.items():
        gone: dict[str, Value] = {"partition": name, "messages": count, "unread": unread[name]}
        await transaction.run("retention.record", rule="dead_letters", **where, **gone)
    return Expired(queue_id, "dead_letters", len(rows), unread.total())
