"""Operations, from acceptance until an hour after their end.

Accepted operations wait in a backlog. Each partition has one for its pushes, and each lane one for its acks. A backlog
is applied in order, by one claim at a time.

The row of a partition counts its open pushes, and no other push of the partition is stored while there are any. So "are
there operations" and "store it or make it one" are one decision under one lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from uuid import UUID, uuid4

import msgspec

from fairlane.model.ids import PartitionId, least_uuid7
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.operation import (
    RETRIES_MAX,
    TIMEOUT_SECONDS,
    BacklogDepth,
    Operation,
    OperationCount,
    OperationStatus,
)
from fairlane.store.contract.operations import (
    BACKLOGS_MAX,
    FIRST,
    LAST,
    RUN_BYTES_MAX,
    RUN_MAX,
    Application,
    ApplyResult,
    BacklogClaim,
    ClaimedBacklog,
    Enqueued,
    EnqueueResult,
    NewOperation,
)
from fairlane.store.families.query import DatabaseTransaction, Family, Row, Value, View, one, struct, value

PAGES = {
    "pending": "operations.page_open",
    "processing": "operations.page_open",
    "failed": "operations.page_failed",
}
"""Statements that find a page of this status by an index."""


class Operations(Family, ABC):
    @abstractmethod
    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        """Append operations to their backlogs. Returns one result each, in order.

        A push takes up space in a limited queue, or is Full. After a Full, later pushes of the same partition in this
        call are Full too if they have `created_at`. An id that exists already changes nothing, so the call may be
        repeated.
        """

    @abstractmethod
    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        """Apply claimed operations, each backlog on its own, and complete them in the same transaction.

        The claim fences the step: the result is Lost if it belongs to another broker. Applied operations end the claim,
        and the rest of the backlog is ready at once.

        Nothing is applied, and the claim stays, on Duplicates, Full and Gone (see `Messages.push`), on acks whose lease
        is lost, and on nacks that come too late.
        """

    async def claim(
        self,
        worker: str,
        *,
        backlogs: int = BACKLOGS_MAX,
        run: int = RUN_MAX,
        run_bytes: int = RUN_BYTES_MAX,
        token: UUID | None = None,
    ) -> list[ClaimedBacklog]:
        """Claim the oldest operations of unclaimed backlogs, best priority first, then longest ready.

        Each backlog goes to one worker. Claims up to `run` operations of a backlog, at least one. The last one
        begins before `run_bytes`.

        A claim ends after TIMEOUT_SECONDS, or with `apply`, `postpone` or `fail`. The caller can give the `token` that
        identifies all claims, so that it can release them if the answer is lost.
        """
        token = token or uuid4()
        run = max(1, min(run, RUN_MAX))
        rows = await self._runner.writes.claim_operations(
            worker, token, backlogs=backlogs, run=run, bytes=run_bytes, seconds=TIMEOUT_SECONDS
        )
        return await self._runner.codec.open_backlogs(_claimed(rows, token), self.postpone)

    async def release(self, token: UUID) -> int:
        """Release the backlogs that are still claimed under a token and return how many. They are ready at once."""
        return len(await self._runner.write("operations.release", token=token))

    async def postpone(self, claims: Sequence[BacklogClaim], *, delay_ms: int, error: str) -> int:
        """Return backlogs unapplied, ready again after the delay. Returns the number that were still claimed."""
        if not claims:
            return 0
        return await self._runner.transact(partial(_postpone, claims=claims, delay_ms=delay_ms, error=error))

    async def fail(self, claim: BacklogClaim, sequences: Sequence[int], error: str, *, delay_ms: int) -> int:
        """Charge a permanent error to the first operations of a claimed backlog, and return the backlog.

        Operations without retries left become `failed`: they keep their payload, free their space in the queue, and the
        backlog continues after them. Returns their number.
        """
        key: dict[str, Value] = {"partition_id": claim.partition.id, "group_id": claim.group_id}
        error = error[:ERROR_CHARS_MAX]

        async def work(transaction: DatabaseTransaction) -> int:
            await transaction.hold([], [claim.partition])
            if not await transaction.run("operations.claimed", token=claim.token, **key):
                return 0
            rows = await transaction.run("operations.charge", sequences=list(sequences), error=error, **key)
            used_up = sorted(sequence for sequence, retries in rows if retries > RETRIES_MAX)
            if not used_up:
                await _postpone(transaction, claims=[claim], delay_ms=delay_ms, error=error)
            for sequence in used_up:
                ended: dict[str, Value] = {"status": "failed", "error": error, "keep_claim": False}
                await transaction.run("operations.drop", sequence=sequence, **ended, **key)
            if used_up:
                where: dict[str, Value] = {"partition_ids": [claim.partition.id], "group_ids": [claim.group_id]}
                await transaction.run("operations.wait_again", error=error, **where)
            return len(used_up)

        return await self._runner.transact(work)

    async def get(self, tenant: str, id: UUID) -> Operation | None:
        found = await self._get(tenant, id)
        return found and await self._runner.codec.open_operation(found)

    async def _get(self, tenant: str, id: UUID) -> Operation | None:
        return one(Operation, await self._runner.read("operations.get", tenant=tenant, id=id))

    async def page(
        self,
        tenant: str,
        *,
        status: OperationStatus | None = None,
        queue: str | None = None,
        after: UUID = FIRST,
        limit: int = 100,
    ) -> list[Operation]:
        """Return operations with ids greater than `after`, by id, which is roughly the order of acceptance.

        Leaves out their payloads.
        """
        where: dict[str, Value] = {"tenant": tenant, "status": status, "queue": queue, "after": after, "limit": limit}
        statement = PAGES.get(status or "", "operations.page")

        async def read(view: View) -> list[Operation]:
            ids = [id for (id,) in await view.run(statement, **where)]
            rows = await view.run("operations.shown", ids=ids) if ids else []
            return [struct(Operation, row) for row in rows]

        return sorted(await self._runner.view(read), key=lambda operation: operation.id)

    async def newest(
        self, tenant: str, status: OperationStatus, *, queue: str | None = None, before: UUID = LAST, limit: int = 100
    ) -> list[Operation]:
        """Return operations with ids less than `before`, newest first, without their payloads."""
        where: dict[str, Value] = {"tenant": tenant, "status": status, "queue": queue, "before": before}

        async def read(view: View) -> list[Operation]:
            ids = [id for (id,) in await view.run("operations.page_newest", limit=limit, **where)]
            rows = await view.run("operations.shown", ids=ids) if ids else []
            return [struct(Operation, row) for row in rows]

        return sorted(await self._runner.view(read), key=lambda operation: operation.id, reverse=True)

    async def failed(self, tenant: str) -> int:
        """Count failed operations that were neither retried nor discarded."""
        return int(value(await self._runner.read("operations.count_failed", tenant=tenant)))

    async def retry(self, tenant: str, id: UUID, anew: NewOperation) -> EnqueueResult | None:
        """Append a failed operation to another backlog, with its id and its time of acceptance.

        Returns None if it is not `failed`.
        """
        found = await self._get(tenant, id)
        if found is None or found.status != "failed":
            return None
        sealed = await self._runner.codec.seal_operation(msgspec.structs.replace(anew, created_at=found.created_at))

        async def work(transaction: DatabaseTransaction) -> EnqueueResult | None:
            await transaction.hold([], [found.partition, anew.partition])
            if value(await transaction.run("operations.lock", **_key(found))) != "failed":
                return None
            await transaction.run("operations.delete", **_key(found))
            [result] = await transaction.enqueue([sealed])
            if not isinstance(result, Enqueued):
                raise _NotEnqueued(result)
            return result

        try:
            return await self._runner.transact(work)
        except _NotEnqueued as refused:
            return refused.result

    async def discard(self, tenant: str, id: UUID) -> bool:
        """Discard a pending or failed operation for good. Returns False if it is neither."""
        found = await self._get(tenant, id)
        if found is None or found.status not in ("pending", "failed"):
            return False
        key = _key(found)

        async def work(transaction: DatabaseTransaction) -> bool:
            await transaction.hold([], [found.partition])
            await transaction.lock("operations.lock_backlog", **key)
            status = value(await transaction.run("operations.lock", **key))
            if status == "failed":
                await transaction.run("operations.give_up", **key)
            elif status == "pending":
                await transaction.run("operations.drop", status="discarded", error=None, keep_claim=True, **key)
            return status in ("failed", "pending")

        return await self._runner.transact(work)

    async def depth(self) -> int:
        """Return the number of open operations, from the counters of the backlogs."""
        return int(value(await self._runner.read("operations.depth")))

    async def acks(self, partition: PartitionId, group_id: int) -> int:
        """Return how many acks of a lane are open."""
        key: dict[str, Value] = {"partition_id": partition.id, "group_id": group_id}
        return value(await self._runner.read("operations.acks", **key)) or 0

    async def counts(self, tenant: str) -> list[OperationCount]:
        """Count operations by type, priority and status. Completed ones count for five minutes."""
        return [struct(OperationCount, row) for row in await self._runner.read("operations.counts", tenant=tenant)]

    async def backlogs(self, tenant: str, *, limit: int = 100) -> list[BacklogDepth]:
        """Return backlogs with open operations, deepest first."""
        where: dict[str, Value] = {"tenant": tenant, "limit": limit}
        return [struct(BacklogDepth, row) for row in await self._runner.read("operations.backlogs", **where)]

    async def clean(self, *, older_than_seconds: int, failed_seconds: int = 0, limit: int = 10_000) -> int:
        """Delete operations that ended long ago and return their number.

        Deletes up to `limit` that were completed or discarded, and up to `limit` that failed. With `failed_seconds` 0
        it keeps failed ones.
        """
        now = value(await self._runner.read("operations.now"))
        old: dict[str, Value] = {"seconds": older_than_seconds}
        # An id is made before its operation ends, so ids made later than this need no check.
        old |= {"newest": least_uuid7(now // 1000 - older_than_seconds * 1000)}
        cleaned = await self._runner.write("operations.clean", limit=limit, **old)
        if failed_seconds:
            cleaned += await self._runner.write("operations.clean_failed", seconds=failed_seconds, limit=limit)
        return len(cleaned)


def _key(operation: Operation) -> dict[str, Value]:
    where: dict[str, Value] = {"partition_id": operation.partition.id, "group_id": operation.group_id}
    return where | {"sequence": operation.sequence}


def _claimed(rows: Sequence[Row], token: UUID) -> list[ClaimedBacklog]:
    found: dict[tuple[int, int], ClaimedBacklog] = {}
    operations = [struct(Operation, row) for row in rows]
    for operation in sorted(operations, key=lambda one: (one.priority, one.created_at, one.sequence)):
        key = (operation.partition.id, operation.group_id)
        if key not in found:
            claim = BacklogClaim(operation.partition, operation.group_id, token)
            found[key] = ClaimedBacklog(claim, operation.queue_id, [])
        found[key].operations.append(operation)
    for backlog in found.values():
        backlog.operations.sort(key=lambda one: one.sequence)
    return list(found.values())


async def _postpone(
    transaction: DatabaseTransaction, *, claims: Sequence[BacklogClaim], delay_ms: int, error: str
) -> int:
    columns: dict[str, Value] = {
        "partition_ids": [claim.partition.id for claim in claims],
        "group_ids": [claim.group_id for claim in claims],
        "tokens": [claim.token for claim in claims],
    }
    rows = await transaction.run("operations.postpone", delay_ms=delay_ms, **columns)
    where: dict[str, Value] = {"partition_ids": [id for id, _ in rows], "group_ids": [group for _, group in rows]}
    await transaction.run("operations.wait_again", error=error[:ERROR_CHARS_MAX], **where)
    return len(rows)


class _NotEnqueued(Exception):
    """Signal to roll back a retry."""

    def __init__(self, result: EnqueueResult) -> None:
        super().__init__()
        self.result = result
