"""`fairlane operation`: inspect, retry and discard operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fairlane.cli import REFUSED
from fairlane.cli.toolkit.command import (
    Client,
    CommandGroup,
    Limit,
    Output,
    Yes,
    arg,
    client_command,
    columns_of,
    opt,
    print_fields,
    print_rows,
)
from fairlane.cli.toolkit.output import confirm, plural
from fairlane.errors import InvalidRequest
from fairlane.model.operation import OperationStatus

if TYPE_CHECKING:
    from fairlane.wire.operations import SettledOperations

app = CommandGroup("operation")

Ids = Annotated[tuple[str, ...], arg("ID", "Ids of failed operations.")]
Queue = Annotated[str | None, opt("Only operations of this queue.")]
All = Annotated[bool, opt("Select all failed operations.", "--all")]
_COLUMNS = columns_of(
    "id type=operation_type status queue partition messages accepted=created_at in_the=durability error=error_message",
    messages=lambda one: one.messages or None,
)
_FIELDS = columns_of(
    "id type=operation_type status queue partition group=consumer_group messages accepted=created_at in_the=durability "
    "ended=processed_at tries=retry_count max_tries=max_retries error=error_message failed=failed_at"
)
_ITEMS = columns_of(
    "transaction_id came_to message_id position", transaction_id=lambda item: item.transaction_id or item.acked
)


@client_command(app, "list", columns=_COLUMNS, empty="No operations match.")
async def list_operations(
    client: Client,
    status: Annotated[OperationStatus | None, opt("Only operations with this status.")] = None,
    queue: Queue = None,
    limit: Limit = 100,
) -> Any:
    """List operations, including those in the journal, in the order in which they were accepted."""
    return await client.operations.all(status=status, queue=queue, limit=limit)


@client_command(app)
async def show(client: Client, id: Annotated[str, arg("ID", "Id of the operation.")]) -> Output:
    """Show an operation and the result of each of its messages."""
    one = await client.operations.get(id)

    def printed() -> None:
        print_fields(_FIELDS, one)
        if one.result is not None and one.result.items:
            print_rows(_ITEMS, one.result.items)

    return Output(one, printed)


@client_command(app)
async def retry(client: Client, ids: Ids = (), queue: Queue = None, every: All = False) -> Output:
    """Retry failed operations, after all other operations of their partition."""
    _check_selection(ids, queue, every)
    return _settled(
        await client.operations.retry_failed(ids or None, queue=queue), "is queued again", "are queued again"
    )


@client_command(app)
async def discard(client: Client, ids: Ids = (), queue: Queue = None, every: All = False, yes: Yes = False) -> Output:
    """Discard failed operations and their messages permanently."""
    _check_selection(ids, queue, every)
    which = plural(len(ids), "operation") if ids else "all failed operations" + (f" of queue {queue}" if queue else "")
    confirm(f"Discard {which} and the messages permanently?", yes)
    return _settled(await client.operations.discard_failed(ids or None, queue=queue), "is discarded", "are discarded")


def _check_selection(ids: tuple[str, ...], queue: str | None, every: bool) -> None:
    if bool(ids) + (queue is not None) + every != 1:
        raise InvalidRequest("name the ids of failed operations, or use --queue or --all")


def _settled(settled: SettledOperations, one: str, many: str) -> Output:
    done = len(settled.done)
    lines = [f"{plural(done, 'operation')} {one if done == 1 else many}."] if done or not settled.refused else []
    lines += [f"Skipped {refused.id}: {refused.error}" for refused in settled.refused]
    return Output(settled, "\n".join(lines), REFUSED if settled.refused else 0)
