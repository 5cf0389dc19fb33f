"""Helpers for tests of operations: enqueue, apply and list them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.operation import Operation, push_payload, read_push
from fairlane.model.queue import Queue
from fairlane.store.contract.operations import (
    Application,
    ApplyResult,
    ClaimedBacklog,
    Enqueued,
    EnqueueResult,
    NewOperation,
)
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import NO_ID_TIME, AckResult, Slice, Stored
from tests.conformance.harness import Harness


async def no_operations(harness: Harness) -> None:
    """Remove the operations of earlier tests, which share the database."""
    await harness.backend.sql("DELETE FROM fairlane.operation_backlogs")


async def push_operation(
    harness: Harness,
    queue: Queue,
    payloads: Sequence[Any],
    *,
    partition: str = DEFAULT_PARTITION,
    ids: Sequence[str] | None = None,
) -> NewOperation:
    backlog = await harness.partition(queue, partition)
    part = harness.slice(queue, backlog, payloads, ids)
    return NewOperation(
        id=UUID(harness.mint()),
        type="PUSH",
        partition=backlog.id,
        queue_id=queue.id,
        options=queue.options,
        tenant=queue.tenant,
        queue=queue.name,
        partition_name=partition,
        messages=len(payloads),
        payload=push_payload(part.fragments, doubt=False),
    )


async def try_enqueue(
    harness: Harness,
    queue: Queue,
    payloads: Sequence[Any],
    *,
    partition: str = DEFAULT_PARTITION,
    ids: Sequence[str] | None = None,
) -> tuple[NewOperation, EnqueueResult]:
    new = await push_operation(harness, queue, payloads, partition=partition, ids=ids)
    [result] = await harness.store.operations.enqueue([new])
    return new, result


async def enqueue(
    harness: Harness,
    queue: Queue,
    payloads: Sequence[Any],
    *,
    partition: str = DEFAULT_PARTITION,
    ids: Sequence[str] | None = None,
) -> NewOperation:
    """Enqueue a push as an operation."""
    new, result = await try_enqueue(harness, queue, payloads, partition=partition, ids=ids)
    assert isinstance(result, Enqueued), result
    return new


def _results(count: int) -> Callable[[Stored | AckResult | None], list[bytes]]:
    return lambda result: [b'"applied"'] * count


def application(queue: Queue, backlog: ClaimedBacklog, operations: Sequence[Operation] | None = None) -> Application:
    """Return the pushes of a claimed lane, all of them by default."""
    some = backlog.operations if operations is None else list(operations)
    part = Slice(backlog.claim.partition, backlog.queue_id, queue.options, [], [], [], [], [])
    for operation in some:
        columns = read_push(operation.payload)
        part.fragments += columns.fragments
        part.transaction_ids += columns.transaction_ids
        part.keys += columns.keys
        part.id_times += [NO_ID_TIME if at is None else at for at in columns.id_times]
        part.given += columns.given
    return Application(
        backlog.claim,
        [one.sequence for one in some],
        sum(one.messages for one in some),
        _results(len(some)),
        slice=part,
    )


async def apply(
    harness: Harness, queue: Queue, backlogs: Sequence[ClaimedBacklog], *, store: Store | None = None
) -> list[ApplyResult]:
    return await (store or harness.store).operations.apply([application(queue, backlog) for backlog in backlogs])


async def work_off(harness: Harness, queue: Queue, *, store: Store | None = None) -> int:
    """Apply all ready pushes. Returns the number of claims."""
    turns = 0
    while backlogs := await (store or harness.store).operations.claim("worker"):
        turns += 1
        assert all(isinstance(result, Stored) for result in await apply(harness, queue, backlogs, store=store))
    return turns


async def status(harness: Harness, queue: Queue, new: NewOperation) -> str:
    found = await harness.store.operations.get(queue.tenant, new.id)
    assert found is not None
    return found.status
