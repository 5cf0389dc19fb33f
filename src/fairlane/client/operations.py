"""Operations: pushes and acks that the broker accepted and applies later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from fairlane.client.resource import ClientResource
from fairlane.errors import InvalidRequest, NotFound, OperationFailed, Unavailable
from fairlane.model.ids import is_uuid
from fairlane.model.limits import COUNT_MAX
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION, check_count, name_or_none
from fairlane.model.operation import OperationStatus
from fairlane.model.outcome import PushOutcome
from fairlane.wire import operations as wire
from fairlane.wire.browse import MessageProgress, MessageResult

QueuedOperation = Literal["return", "wait"]
WAIT_SECONDS = 30.0
_FIRST_POLL_SECONDS, _POLL_SECONDS_MAX = 0.1, 1.0
_PAGE = 100


ResultOf = Callable[..., Awaitable[Any]]


class PushHandle(PushOutcome, kw_only=True, gc=True):
    """The outcome of a push, through which the caller can wait for the result of its handler."""

    result_of: ResultOf | None = None
    state_of: Callable[[], Awaitable[MessageResult]] | None = None

    @staticmethod
    def of(
        outcome: PushOutcome,
        queue: str,
        item: PushItem,
        result_of: ResultOf,
        state_of: Callable[..., Awaitable[MessageResult]],
    ) -> PushHandle:
        """Return the handle of an outcome. `result_of` and `state_of` take queue, transactionId and partition."""
        handle = outcome if isinstance(outcome, PushHandle) else PushHandle(**msgspec.structs.asdict(outcome))
        id = outcome.transaction_id
        # The message that excludes a unique one may be in another partition.
        where = (item.partition if id == item.transaction_id else outcome.partition) or DEFAULT_PARTITION
        is_coming = outcome.status == "buffered" or outcome.deliver_at is not None
        handle.result_of = partial(result_of, queue, id, where, is_coming)
        handle.state_of = partial(state_of, queue, id, partition=where)
        return handle

    async def progress(self) -> MessageProgress | None:
        """Return the progress that the handler reported last. None if the message is not being handled."""
        if self.state_of is None:
            raise InvalidRequest("only a push with `push` knows it; use client.results.get(queue, transaction_id)")
        return (await self.state_of()).progress

    async def result(self, *, type: Any = Any, group: str | None = None, timeout: float = WAIT_SECONDS) -> Any:  # noqa: ASYNC109
        """Wait until the message is handled, and return what its handler returned, as `Client.result` does.

        It also waits for a message that is scheduled or not stored yet.
        """
        if self.result_of is None:
            raise InvalidRequest("only a push with `push` has a result; use client.result(queue, transaction_id)")
        return await self.result_of(type=type, group=group, timeout=timeout)

    def __repr__(self) -> str:
        return f"<push {self.transaction_id}: {self.status}>"


class QueuedPush(PushHandle, kw_only=True, gc=True):
    """A push that is durable but not stored yet. `wait` returns when it is stored."""

    wait_stored: Callable[[PushOutcome, float], Awaitable[PushOutcome]]

    async def wait(self, seconds: float = WAIT_SECONDS) -> PushOutcome:
        """Wait until the message is stored; the outcome is `queued` or `duplicate`.

        Raises OperationFailed if the operation was discarded or failed. Raises Unavailable if it is still pending after
        `seconds`; the message is stored later all the same.
        """
        return await self.wait_stored(self, seconds)


class Operations(ClientResource):
    async def get(self, id: str) -> wire.OperationState:
        """Return the state of an operation. Raises NotFound; completed operations are kept for an hour."""
        return await self._call(wire.OperationState, "GET", *_path(id))

    async def all(
        self, *, status: OperationStatus | None = None, queue: str | None = None, limit: int = 100
    ) -> list[wire.OperationState]:
        """Return up to `limit` operations in the order in which they were accepted, filtered by status or queue.

        Operations in a journal are only listed by the broker that has it.
        """
        left = check_count("limit", limit, least=1, most=COUNT_MAX)
        query: dict[str, str | int | None] = {"status": status, "queue": name_or_none("queue", queue)}
        found: list[wire.OperationState] = []
        while left:
            query["limit"] = min(left, _PAGE)
            page = await self._call(wire.OperationPage, "GET", "operations", query=query)
            found += page.operations
            left -= len(page.operations)
            if page.cursor is None:
                break
            query["cursor"] = page.cursor
        return found

    async def retry(self, id: str) -> wire.OperationState:
        """Retry a failed operation after all others of its lane. Raises Conflict if it has not failed."""
        return await self._call(wire.OperationState, "POST", *_path(id), "retry")

    async def discard(self, id: str) -> wire.OperationState:
        """Discard a pending or failed operation permanently. Raises Conflict if it is neither."""
        return await self._call(wire.OperationState, "POST", *_path(id), "discard")

    async def retry_failed(
        self, ids: Sequence[str] | None = None, *, queue: str | None = None
    ) -> wire.SettledOperations:
        """Retry failed operations: those named by id, all of a queue, or all."""
        return await self._settle("retry", ids, queue)

    async def discard_failed(
        self, ids: Sequence[str] | None = None, *, queue: str | None = None
    ) -> wire.SettledOperations:
        """Discard failed operations permanently: those named by id, all of a queue, or all."""
        return await self._settle("discard", ids, queue)

    async def _settle(self, verb: str, ids: Sequence[str] | None, queue: str | None) -> wire.SettledOperations:
        if ids is not None and queue is not None:
            raise InvalidRequest("name the ids of operations, or their queue, not both")
        parts = [None] if ids is None else [list(ids[at : at + _PAGE]) for at in range(0, len(ids), _PAGE)]
        settled = wire.SettledOperations(done=[], refused=[])
        for some in parts:
            body = wire.SettleBody(ids=some, queue=queue, all=some is None and queue is None)
            while True:
                answer = await self._call(wire.SettledPage, "POST", "operations", verb, body=body)
                settled.done.extend(answer.done)
                settled.refused.extend(answer.refused)
                if answer.cursor is None:
                    break
                body.cursor = answer.cursor
        return settled


class QueuedPushes:
    """Pushes that became operations: waits for them, or gives each a handle."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def _wait_for_end(self, outcome: PushOutcome, seconds: float) -> wire.OperationState:
        """Wait until the operation of a push is finished."""
        id, pause = outcome.operation_id or "", _FIRST_POLL_SECONDS
        unknown: NotFound | None = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        found, unknown = await self._operations.get(id), None
                        if found.status not in ("pending", "processing"):
                            return found
                    except NotFound as error:
                        if outcome.durability != "journal":
                            raise
                        unknown = error  # it may be in the journal of a broker other than the one that answered
                    except Unavailable:
                        pass  # the operation waits for the store too
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _POLL_SECONDS_MAX)
        except TimeoutError:
            raise unknown or Unavailable(
                f"operation {id} is still pending after {seconds:g} s; it is durable and will be applied"
            ) from None

    async def wait_stored(self, outcome: PushOutcome, seconds: float = WAIT_SECONDS) -> PushOutcome:
        """Wait until a push that became an operation is stored. Raises like `QueuedPush.wait`."""
        return final_outcome(outcome, await self._wait_for_end(outcome, seconds))

    async def wait_all(self, outcomes: Sequence[PushOutcome]) -> list[PushOutcome]:
        """Wait for the outcomes that are operations, and return all outcomes. Polls each operation once."""
        pending = {one.operation_id: one for one in outcomes if one.status == "buffered"}
        ended = await asyncio.gather(*(self._wait_for_end(one, WAIT_SECONDS) for one in pending.values()))
        found = dict(zip(pending, ended, strict=True))
        return [final_outcome(one, found[one.operation_id]) if one.status == "buffered" else one for one in outcomes]

    def handle(self, outcome: PushOutcome) -> PushOutcome:
        """Return the outcome of a push, as a `QueuedPush` if it became an operation."""
        if outcome.status != "buffered":
            return outcome
        return QueuedPush(**msgspec.structs.asdict(outcome), wait_stored=self.wait_stored)


def _path(id: str) -> tuple[str, str]:
    if not is_uuid(id):
        raise InvalidRequest(f"{id!r:.80} is not the id of an operation")
    return "operations", id


def final_outcome(outcome: PushOutcome, operation: wire.OperationState) -> PushOutcome:
    """Return the outcome of one push from its finished operation. Raises OperationFailed."""
    if operation.status != "completed":
        why = operation.error_message or "by an operator"
        raise OperationFailed(f"operation {operation.id} was {operation.status}: {why}")
    items = operation.result.items if operation.result else []
    item = next((one for one in items if one.transaction_id == outcome.transaction_id), wire.OperationItem())
    status: Literal["queued", "duplicate"] = "duplicate" if item.status == "duplicate" else "queued"
    return PushOutcome(
        status,
        outcome.transaction_id,
        item.message_id,
        outcome.partition,
        item.position,
        outcome.depth,
        outcome.capacity,
        operation_id=operation.id,
    )
