"""Operations, from their acceptance until an hour after their end.

What was accepted and is not applied yet waits in a backlog: of a partition (its pushes) or of a lane (its acks). It is
applied in order, one claim at a time. The partition's row counts its open pushes: while there are any, no other push of
it is stored, so that "are there operations" and "store it or make it one" are one decision under one lock."""

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
"""Statements by which a page of this status is found without walking over all others."""


class Operations(Family, ABC):
    @abstractmethod
    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        """Append each to its backlog, or say why not; one result each, in order.

        A push takes the places of its messages in a limited queue, or is Full; so is then each later one of the same
        partition in this call, if they were accepted before (`created_at`). An id that is there already
        changes nothing, so that the call may be repeated."""

    @abstractmethod
    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        """Apply and complete claimed operations, in one step that is fenced by the claim; each backlog by itself.

        Lost when the claim is another's. Duplicates, Full and Gone (see `Messages.push`), and acks with a lost
        lease or a nack that came too late, apply nothing and leave the claim as it is. Who is applied gives the claim
        back, and what is left of the backlog is ready at once."""

    async def claim(
        self,
        worker: str,
        *,
        backlogs: int = BACKLOGS_MAX,
        run: int = RUN_MAX,
        run_bytes: int = RUN_BYTES_MAX,
        token: UUID | None = None,
    ) -> list[ClaimedBacklog]:
        """Claim the oldest operations of backlogs that are not claimed, best priority first, then longest-ready first;
        each backlog to one worker. Of a backlog at most `run` are claimed, and the last is the one that begins before
        `run_bytes`; at least one is.

        A claim ends after TIMEOUT_SECONDS, or with `apply`, `postpone` or `fail`. `token` is what all of them are known
        by, also if the answer is lost."""
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
        """Give backlogs back unapplied; they are ready after the delay. How many were still claimed."""
        if not claims:
            return 0
        return await self._runner.transact(partial(_postpone, claims=claims, delay_ms=delay_ms, error=error))

    async def fail(self, claim: BacklogClaim, sequences: Sequence[int], error: str, *, delay_ms: int) -> int:
        """Charge a permanent error to the first operations of a claimed backlog and give the backlog back; how many
        were given up on. Those are `failed`, stay whole, give their places back, and the backlog goes on after them."""
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
        """Operations whose id is greater than `after`, by id: about the order in which they were accepted. Without
        their payloads."""
        where: dict[str, Value] = {"tenant": tenant, "status": status, "queue": queue, "after": after, "limit": limit}
        statement = PAGES.get(status or "", "operations.page")

        async def read(view: View) -> list[Operation]:
            ids = [id for (id,) in await view.run(statement, **where)]
            rows = await view.run("operations.shown", ids=ids) if ids else []
            return [struct(Operation, row) for row in rows]

        return sorted(await self._runner.view(read), key=lambda operation: operation.id)

    async def failed(self, tenant: str) -> int:
        """How many failed, and nobody decided yet."""
        return int(value(await self._runner.read("operations.count_failed", tenant=tenant)))

    async def retry(self, tenant: str, id: UUID, anew: NewOperation) -> EnqueueResult | None:
        """Put a failed operation at the end of the backlog that `anew` names, with its id and the time of its
        acceptance; None if it is not `failed`."""
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
        """Give up an operation that is pending or failed, for good; False if it is neither."""
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
        """How many are open, from the counters of the backlogs."""
        return int(value(await self._runner.read("operations.depth")))

    async def acks(self, partition: PartitionId, group_id: int) -> int:
        """Return how many acks of a lane are open."""
        key: dict[str, Value] = {"partition_id": partition.id, "group_id": group_id}
        return value(await self._runner.read("operations.acks", **key)) or 0

    async def counts(self, tenant: str) -> list[OperationCount]:
        """By type and status; completed ones as far as they ended in the last five minutes."""
        return [struct(OperationCount, row) for row in await self._runner.read("operations.counts", tenant=tenant)]

    async def backlogs(self, tenant: str, *, limit: int = 100) -> list[BacklogDepth]:
        """Backlogs with open operations, deepest first."""
        where: dict[str, Value] = {"tenant": tenant, "limit": limit}
        return [struct(BacklogDepth, row) for row in await self._runner.read("operations.backlogs", **where)]

    async def clean(self, *, older_than_seconds: int, failed_seconds: int = 0, limit: int = 10_000) -> int:
        """Remove up to `limit` that were completed or discarded so long ago, and as many that failed so long ago
        (0: none of those); how many."""
        now = value(await self._runner.read("operations.now"))
        old: dict[str, Value] = {"seconds": older_than_seconds}
        # Ids are made before operations end, so that those which begin with a later time need no look.
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
    """The rollback of a retry."""

    def __init__(self, result: EnqueueResult) -> None:
        super().__init__()
        self.result = result
