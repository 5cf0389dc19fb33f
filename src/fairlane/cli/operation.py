"""`fairlane operation ...`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fairlane.cli import REFUSED
from fairlane.cli.output import confirm, counted
from fairlane.cli.verb import Client, Limit, Noun, Shown, Yes, arg, columns_of, opt, print_facts, print_rows, verb
from fairlane.errors import InvalidRequest
from fairlane.model.operation import OperationStatus

if TYPE_CHECKING:
    from fairlane.wire.operations import SettledOperations

app = Noun("operation")

Ids = Annotated[list[str] | None, arg("ID", "Of failed operations.")]
Queue = Annotated[str | None, opt("Those of this queue.")]
All = Annotated[bool, opt("All that failed.", "--all")]
_COLUMNS = columns_of(
    "id type=operation_type status queue partition messages accepted=created_at in_the=durability error=error_message",
    messages=lambda one: one.messages or None,
)
_FACTS = columns_of(
    "id type=operation_type status queue partition group=consumer_group messages accepted=created_at in_the=durability "
    "ended=processed_at tries=retry_count error=error_message failed=failed_at"
)
_ITEMS = columns_of(
    "transaction_id came_to message_id position", transaction_id=lambda item: item.transaction_id or item.acked
)


@verb(app, "list", columns=_COLUMNS, empty="There are no such operations.")
async def list_operations(
    client: Client,
    status: Annotated[OperationStatus | None, opt("Those that are so far.")] = None,
    queue: Queue = None,
    limit: Limit = 100,
) -> Any:
    """List operations in the order of their acceptance, of the journal as well."""
    return await client.operations.list(status=status, queue=queue, limit=limit)


@verb(app)
async def show(client: Client, id: Annotated[str, arg("ID", "Of an operation.")]) -> Shown:
    """Show what became of an operation, message by message."""
    one = await client.operations.get(id)

    def printed() -> None:
        print_facts(_FACTS, one)
        if one.result is not None and one.result.items:
            print_rows(_ITEMS, one.result.items)

    return Shown(one, printed)


@verb(app)
async def retry(client: Client, ids: Ids = None, queue: Queue = None, every: All = False) -> Shown:
    """Let failed operations wait again, at the end of their partition."""
    _choose(ids, queue, every)
    return _settled(await client.operations.retry_failed(ids or None, queue=queue), "waits again", "wait again")


@verb(app)
async def discard(client: Client, ids: Ids = None, queue: Queue = None, every: All = False, yes: Yes = False) -> Shown:
    """Give up failed operations, and their messages, for good."""
    _choose(ids, queue, every)
    which = counted(len(ids), "operation") if ids else "all failed operations" + (f" of queue {queue}" if queue else "")
    confirm(f"Give up {which}, with the messages, for good?", yes)
    return _settled(await client.operations.discard_failed(ids or None, queue=queue), "is given up", "are given up")


def _choose(ids: list[str] | None, queue: str | None, every: bool) -> None:
    if bool(ids) + (queue is not None) + every != 1:
        raise InvalidRequest("name the ids of failed operations, or their --queue, or say --all")


def _settled(settled: SettledOperations, one: str, many: str) -> Shown:
    done = len(settled.done)
    lines = [f"{counted(done, 'operation')} {one if done == 1 else many}."] if done or not settled.refused else []
    lines += [f"Not {refused.id}: {refused.error}" for refused in settled.refused]
    return Shown(settled, "\n".join(lines), REFUSED if settled.refused else 0)
