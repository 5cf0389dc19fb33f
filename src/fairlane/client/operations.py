"""Operations: pushes and acks that were accepted and are applied later, looked up and waited for."""

from __future__ import annotations

import asyncio
from builtins import list as List  # there is a verb of that name
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from fairlane.client.part import Part
from fairlane.errors import InvalidRequest, NotFound, OperationFailed, Unavailable
from fairlane.model.ids import is_uuid
from fairlane.model.limits import COUNT_MAX
from fairlane.model.names import check_count, name_or_none
from fairlane.model.operation import OperationStatus
from fairlane.model.outcome import PushOutcome
from fairlane.wire import operations as wire

QueuedOperation = Literal["return", "wait"]
WAIT_SECONDS = 30.0
_FIRST_LOOK_SECONDS, _LOOK_SECONDS_MAX = 0.1, 1.0
_PAGE = 100


class QueuedPush(PushOutcome, kw_only=True, gc=True):
    """A push that is durable and stored soon. `wait` returns when it is."""

    look: Callable[[PushOutcome, float], Awaitable[PushOutcome]]

    async def wait(self, seconds: float = WAIT_SECONDS) -> PushOutcome:
        """What it came to: `queued` or `duplicate`. Raises OperationFailed if it was given up on, and Unavailable if it
        still waits after so many seconds; it is stored all the same."""
        return await self.look(self, seconds)


class Operations(Part):
    async def get(self, id: str) -> wire.OperationState:
        """What became of an operation. Raises NotFound; completed ones are gone after an hour."""
        return await self._ask(wire.OperationState, "GET", *_path(id))

    async def list(
        self, *, status: OperationStatus | None = None, queue: str | None = None, limit: int = 100
    ) -> List[wire.OperationState]:
        """Operations in the order of their acceptance: those of a status, of a queue, or all. Of those in journals the
        ones of the broker that answers."""
        left = check_count("limit", limit, least=1, most=COUNT_MAX)
        query: dict[str, str | int | None] = {"status": status, "queue": name_or_none("queue", queue)}
        found: List[wire.OperationState] = []
        while left:
            query["limit"] = min(left, _PAGE)
            page = await self._ask(wire.OperationPage, "GET", "operations", query=query)
            found += page.operations
            left -= len(page.operations)
            if page.cursor is None:
                break
            query["cursor"] = page.cursor
        return found

    async def retry(self, id: str) -> wire.OperationState:
        """Let a failed operation wait again, at the end of its lane. Raises Conflict if it did not fail."""
        return await self._ask(wire.OperationState, "POST", *_path(id), "retry")

    async def discard(self, id: str) -> wire.OperationState:
        """Give up a pending or failed operation for good. Raises Conflict if it is neither."""
        return await self._ask(wire.OperationState, "POST", *_path(id), "discard")

    async def retry_failed(
        self, ids: Sequence[str] | None = None, *, queue: str | None = None
    ) -> wire.SettledOperations:
        """Let failed operations wait again: those named, those of a queue, or all of them."""
        return await self._settle("retry", ids, queue)

    async def discard_failed(
        self, ids: Sequence[str] | None = None, *, queue: str | None = None
    ) -> wire.SettledOperations:
        """Give up failed operations for good: those named, those of a queue, or all of them."""
        return await self._settle("discard", ids, queue)

    async def _settle(self, verb: str, ids: Sequence[str] | None, queue: str | None) -> wire.SettledOperations:
        if ids is not None and queue is not None:
            raise InvalidRequest("name the ids of operations, or their queue, not both")
        parts = [None] if ids is None else [List(ids[at : at + _PAGE]) for at in range(0, len(ids), _PAGE)]
        settled = wire.SettledOperations(done=[], refused=[])
        for some in parts:
            body = wire.SettleBody(ids=some, queue=queue, all=some is None and queue is None)
            while True:
                answer = await self._ask(wire.SettledPage, "POST", "operations", verb, body=body)
                settled.done.extend(answer.done)
                settled.refused.extend(answer.refused)
                if answer.cursor is None:
                    break
                body.cursor = answer.cursor
        return settled


class QueuedPushes:
    """Pushes that became operations, waited for or with a handle."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def _ended(self, outcome: PushOutcome, seconds: float) -> wire.OperationState:
        """The operation of a push, when it is over."""
        id, pause = outcome.operation_id or "", _FIRST_LOOK_SECONDS
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
                        unknown = error  # another broker may have answered, which does not know this journal
                    except Unavailable:
                        pass  # it waits for the store as well
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LOOK_SECONDS_MAX)
        except TimeoutError:
            raise unknown or Unavailable(
                f"operation {id} still waits after {seconds:g} s; it is durable and will be applied"
            ) from None

    async def look(self, outcome: PushOutcome, seconds: float = WAIT_SECONDS) -> PushOutcome:
        """What a push that became an operation came to, as `QueuedPush.wait` tells it."""
        return came_to(outcome, await self._ended(outcome, seconds))

    async def look_all(self, outcomes: Sequence[PushOutcome]) -> List[PushOutcome]:
        """The outcomes, with what became of those that are operations; each operation is asked for once."""
        pending = {one.operation_id: one for one in outcomes if one.status == "buffered"}
        ended = await asyncio.gather(*(self._ended(one, WAIT_SECONDS) for one in pending.values()))
        found = dict(zip(pending, ended, strict=True))
        return [came_to(one, found[one.operation_id]) if one.status == "buffered" else one for one in outcomes]

    def handle(self, outcome: PushOutcome) -> PushOutcome:
        """The outcome of a push; of one that became an operation with a way to wait for it."""
        if outcome.status != "buffered":
            return outcome
        return QueuedPush(**msgspec.structs.asdict(outcome), look=self.look)


def _path(id: str) -> tuple[str, str]:
    if not is_uuid(id):
        raise InvalidRequest(f"{id!r:.80} is not the id of an operation")
    return "operations", id


def came_to(outcome: PushOutcome, operation: wire.OperationState) -> PushOutcome:
    """The outcome of one push, out of what its operation came to."""
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
