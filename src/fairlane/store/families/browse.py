"""Browsing: messages of queues one by one, looked at without taking them, and taking them out of the order of the log.

No read counts message by message: pages come from segments. A message taken out stays where it is until its segment
goes; positions keep their meaning. Pops step over it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Literal, Protocol, cast
from uuid import UUID

from fairlane.errors import Unavailable
from fairlane.model.ids import PartitionId, id_key, uuid7_ms
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.segment import HEAD_BYTES, Segment, head_of, ids_of
from fairlane.store.contract.browse import ActivePartition, FoundMessage, ListPosition, StoredHead, Upto
from fairlane.store.families.query import DatabaseTransaction, Family, QueryRunner, Value, struct, value
from fairlane.store.families.queues import no_such_queue, recount

DeadLettered = Literal["dead", "finished", "gone"]
_TRIM: Final = 1_000
"""Rows deleted in one step: others wait for it some milliseconds."""
YEAR_9999: Final = 253_402_300_799_000_000
_log = logging.getLogger(__name__)


class MessageReader(Protocol):
    async def read(self, partition: PartitionId, first: int, upto: int) -> list[Segment]: ...


class Browse(Family):
    def __init__(self, runner: QueryRunner, messages: MessageReader) -> None:
        super().__init__(runner)
        self._messages = messages

    async def active(
        self,
        queue_ids: Sequence[int],
        *,
        name: str | None = None,
        since: int = 0,
        before: tuple[int, PartitionId] | None = None,
        limit: int = 100,
    ) -> list[ActivePartition]:
        """Partitions that hold messages and were written to at or after `since`, latest write first, then greatest
        id first; `before` is (last_at, id) of the last one seen; `name`: only those called so."""
        last_at, last = before or (None, None)
        page: dict[str, Value] = {"before_at": last_at, "before_id": last and last.id, "limit": limit}
        page |= {"queue_ids": queue_ids, "name": name, "since": since}
        return [struct(ActivePartition, row) for row in await self._runner.read("browse.active", **page)]

    async def newest(self, where: Sequence[Upto], *, since: int = 0, limit: int = 100) -> list[StoredHead]:
        """Of each partition the newest messages below its bound, up to `limit` of each, created at or after `since`;
        deleted ones are left out. Partitions in the order given, each newest first."""
        found: list[list[StoredHead]] = [[] for _ in where]
        rows = await self._runner.reads.newest_messages(
            [upto.partition.id for upto in where],
            [min(upto.until, YEAR_9999) for upto in where],
            [min(upto.position, 2**62) for upto in where],
            since=since,
            limit=limit,
            bytes=HEAD_BYTES,
        )
        for item, position, at, head in rows:
            listed = ListPosition(at, where[item - 1].partition, position)
            found[item - 1].append(StoredHead(listed, *head_of(head)))
        return [head for heads in found for head in heads]

    async def traced(self, queue_ids: Sequence[int], trace_id: str, *, limit: int = 10_000) -> list[FoundMessage]:
        """Return messages of these queues with a traceId, in no order, also deleted ones whose rows still exist."""
        what: dict[str, Value] = {"queue_ids": queue_ids, "trace_id": str(UUID(trace_id)), "limit": limit}
        return [struct(FoundMessage, row) for row in await self._runner.read("browse.traced", **what)]

    async def with_id(self, queue_ids: Sequence[int], transaction_id: str) -> list[FoundMessage]:
        """Where messages of these queues with this transactionId may be, in no order: by the ids that are remembered,
        and by the time inside a UUIDv7. Whoever reads them compares."""
        made_at = uuid7_ms(transaction_id)
        since = made_at * 1000 - 1_000_000 if made_at is not None and made_at < 2**43 else None
        until = None if since is None else since + 62_000_000
        keys = [id_key(transaction_id), id_key(transaction_id, salt=1)]
        rows = await self._runner.reads.messages_with_id(queue_ids, transaction_id, keys, since, until)
        return [struct(FoundMessage, row) for row in rows]

    async def delete(self, partition: PartitionId, position: int) -> bool:
        """Take a message out for every group, with its dead letters and results; False if it is not there (any more).

        From then on no pop delivers it. Who holds it in a live lease may still ack it. It is not part of the
        queue's depth, and its transactionId may be pushed anew."""
        fragments: list[bytes] = []
        for segment in await self._messages.read(partition, position, position + 1):
            fragments += segment.fragments(position, position + 1)
        if not fragments:
            return False
        return await self._runner.writes.delete_message(partition.id, position, ids_of(fragments[0])[1])

    async def dead_letter(self, partition: PartitionId, group_id: int, position: int, error: str) -> DeadLettered:
        """Dead-letter a message for one group at once, also behind others that it has not read yet.

        `finished` and nothing done if its cursor has passed the message, or it was given up on before; `gone` if
        there is no such message or group. A seek of the group brings the message back, like any dead letter's; until
        the cursor has passed it, it keeps its place in the queue's depth."""
        error = error[:ERROR_CHARS_MAX]
        outcome = await self._runner.writes.dead_letter_message(partition.id, group_id, position, error)
        return cast(DeadLettered, outcome or "gone")

    async def clear(self, queue_id: int, *, partition: PartitionId | None = None) -> int:
        """Take out all messages there are, of the queue or of one partition, and end all leases; how many.

        Their ids, and those of messages that went before, may be pushed anew.

        Every group stands at the head afterwards. Dead letters stay. Rows go in bounded steps. NotFound if the
        queue is gone."""
        where = {"queue_id": queue_id, "partition_id": partition.id if partition else 0}

        async def work(transaction: DatabaseTransaction) -> int:
            await transaction.lock("browse.lock_scheduled", **where)
            limit = value(await transaction.run("queues.lock_by_id", queue_id=queue_id))
            if limit is None:
                raise no_such_queue(queue_id)
            cleared = value(await transaction.run("browse.clear", **where))
            if limit:
                await recount(transaction, queue_id)
            return cleared or 0

        cleared = await self._runner.transact(work)
        await self.trim()
        return cleared

    async def trim(self) -> None:
        """Remove what lies below the start of cleared partitions, also of those that a broker which died cleared."""
        try:
            while await self._trim():
                pass
        except Unavailable as error:
            _log.warning("cannot delete rows of cleared queues before the next start: %s", error)

    async def trim_some(self, steps: int) -> bool:
        """Forget ids whose window has passed, then trim in up to `steps` steps. Returns True if something is left."""
        left = await self._runner.writes.forget_ids(_TRIM) == _TRIM
        for _ in range(steps):
            if not await self._trim():
                return left
        return True

    async def _trim(self) -> bool:
        """Remove some rows below the start of some partitions; False when there are none."""
        return await self._runner.writes.trim(_TRIM)
