"""Browsing, which reads messages without consuming them, and the removal of single messages from the log.

Pages are read from segments, so no read counts messages one by one. A removed message keeps its position until its
segment is deleted. Pops skip it.
"""

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
"""Rows deleted in one step, so that its locks are held for milliseconds."""
YEAR_9999: Final = 253_402_300_799_000_000
_log = logging.getLogger(__name__)


class MessageReader(Protocol):
    async def read(self, partition: PartitionId, first: int, upto: int) -> list[Segment]: ...

    async def find(self, partition: PartitionId, transaction_id: str, *, deleted: bool = False) -> int | None: ...


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
        """Return partitions that hold messages and were written to at or after `since`, latest write first.

        Equal times are ordered by descending id. `before` is (last_at, id) of the last one on the page before. `name`
        keeps only partitions of this name.
        """
        last_at, last = before or (None, None)
        page: dict[str, Value] = {"before_at": last_at, "before_id": last and last.id, "limit": limit}
        page |= {"queue_ids": queue_ids, "name": name, "since": since}
        return [struct(ActivePartition, row) for row in await self._runner.read("browse.active", **page)]

    async def newest(self, where: Sequence[Upto], *, since: int = 0, limit: int = 100) -> list[StoredHead]:
        """Return up to `limit` of the newest messages below each bound, created at or after `since`.

        Leaves out deleted messages. Partitions come in the given order, each newest first.
        """
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
        """Return messages of these queues that have a traceId, in no order.

        Includes deleted messages whose rows still exist.
        """
        what: dict[str, Value] = {"queue_ids": queue_ids, "trace_id": str(UUID(trace_id)), "limit": limit}
        return [struct(FoundMessage, row) for row in await self._runner.read("browse.traced", **what)]

    async def named_like(self, queue_ids: Sequence[int], prefix: str, *, limit: int) -> list[ActivePartition]:
        """Return partitions of these queues whose names begin with `prefix`, by name."""
        where: dict[str, Value] = {"queue_ids": queue_ids, "prefix": prefix, "upto": f"{prefix}\U0010ffff"}
        return [
            struct(ActivePartition, row) for row in await self._runner.read("browse.named_like", limit=limit, **where)
        ]

    async def with_id(
        self, queue_ids: Sequence[int], transaction_id: str, *, among: Sequence[PartitionId] | None = None
    ) -> list[FoundMessage]:
        """Return places in these queues where a message with this transactionId may be, in no order.

        Uses the remembered ids and the time inside a UUIDv7. The caller compares the messages. `among` limits the
        search to some partitions.
        """
        made_at = uuid7_ms(transaction_id)
        since = made_at * 1000 - 1_000_000 if made_at is not None and made_at < 2**43 else None
        until = None if since is None else since + 62_000_000
        keys = [id_key(transaction_id), id_key(transaction_id, salt=1)]
        partitions = None if among is None else [one.id for one in among]
        rows = await self._runner.reads.messages_with_id(queue_ids, partitions, transaction_id, keys, since, until)
        return [struct(FoundMessage, row) for row in rows]

    async def delete(self, partition: PartitionId, position: int) -> bool:
        """Delete a message for every group, with its dead letters and results. Returns False if it does not exist.

        Later pops skip it. A consumer with a live lease may still ack it. It no longer counts towards the queue's
        depth, and its transactionId may be pushed again.
        """
        fragments: list[bytes] = []
        for segment in await self._messages.read(partition, position, position + 1):
            fragments += segment.fragments(position, position + 1)
        if not fragments:
            return False
        return await self._runner.writes.delete_message(partition.id, position, ids_of(fragments[0])[1])

    async def dead_letter(self, partition: PartitionId, group_id: int, position: int, error: str) -> DeadLettered:
        """Dead-letter a message for one group at once, even if the group has not read the messages before it.

        Returns `finished` if the group's cursor has passed the message or it is a dead letter already. Returns `gone`
        if the message or group does not exist. A seek brings the message back, as with any dead letter. The message
        counts towards the depth of the queue until the cursor has passed it.
        """
        error = error[:ERROR_CHARS_MAX]
        outcome = await self._runner.writes.dead_letter_message(partition.id, group_id, position, error)
        return cast(DeadLettered, outcome or "gone")

    async def clear(self, queue_id: int, *, partition: PartitionId | None = None) -> int:
        """Delete all messages of the queue or of one partition, end all leases, and return the number of messages.

        Cursors of all groups move to the head, and dead letters stay. The ids of these and of earlier messages may be
        pushed again. Rows are deleted in bounded steps. Raises NotFound if the queue does not exist.
        """
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
        """Delete rows below the start of cleared partitions, including those that a crashed broker left behind."""
        try:
            while await self._trim():
                pass
        except Unavailable as error:
            _log.warning("cannot delete rows of cleared queues before the next start: %s", error)

    async def trim_some(self, steps: int) -> bool:
        """Forget ids whose window has passed, then trim in up to `steps` steps. Returns True if rows may be left."""
        left = await self._runner.writes.forget_ids(_TRIM) == _TRIM
        for _ in range(steps):
            if not await self._trim():
                return left
        return True

    async def _trim(self) -> bool:
        """Delete some rows below the start of some partitions. Returns False if there are none."""
        return await self._runner.writes.trim(_TRIM)
