"""`fairlane operation ...`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.exits import REFUSED
from fairlane.cli.output import AsJson, Yes, confirm, echo, print_json, print_table, shown_time
from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from fairlane.client.operations import SettledOperations

app = typer.Typer(
    help="Pushes and acks that were accepted and wait, and those of them that failed.", no_args_is_help=True
)

_STATUSES = ("pending", "processing", "completed", "failed", "discarded")
Id = Annotated[str, typer.Argument(metavar="ID", help="Of an operation.", show_default=False)]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Of failed operations.", show_default=False)]
Queue = Annotated[str | None, typer.Option(help="Those of this queue.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All that failed.")]


@app.command("list")
def list_operations(
    status: Annotated[
        str | None, typer.Option(help=f"Those that are {', '.join(_STATUSES[:-1])} or discarded.", show_default=False)
    ] = None,
    queue: Queue = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.")] = 100,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """List operations in the order of their acceptance, of the journal as well."""
    if status is not None and status not in _STATUSES:
        raise InvalidRequest(f"an operation is {', '.join(_STATUSES)}, not {status!r:.40}")
    with connected(server) as client:
        found = client.operations(status=status, queue=queue, limit=limit)  # type: ignore[arg-type]
    if json:
        print_json(found)
        return
    rows = [
        (
            one.id,
            one.operation_type,
            one.status,
            one.queue,
            one.partition,
            one.messages or None,
            shown_time(one.created_at),
            one.durability,
            one.error_message,
        )
        for one in found
    ]
    columns = ("id", "type", "status", "queue", "partition", "messages", "accepted", "in the", "error")
    print_table(columns, rows, empty="There are no such operations.")


@app.command()
def show(id: Id, server: Server = DEFAULT, json: AsJson = False) -> None:
    """Show what became of an operation, message by message."""
    with connected(server) as client:
        one = client.operation(id)
    if json:
        print_json(one)
        return
    facts = (
        ("id", one.id),
        ("type", one.operation_type),
        ("status", one.status),
        ("queue", one.queue),
        ("partition", one.partition),
        ("group", one.consumer_group),
        ("messages", one.messages or None),
        ("accepted", shown_time(one.created_at)),
        ("in the", one.durability),
        ("ended", shown_time(one.processed_at)),
        ("tries", one.retry_count or None),
        ("error", one.error_message),
        ("failed", shown_time(one.failed_at)),
    )
    print_table(("", ""), [fact for fact in facts if fact[1]], empty="")
    if one.result is not None and one.result.items:
        items = [
            (item.transaction_id or item.acked, item.came_to, item.message_id, item.position)
            for item in one.result.items
        ]
        print_table(("transaction id", "came to", "message id", "position"), items, empty="")


@app.command()
def retry(
    ids: Ids = None, queue: Queue = None, every: All = False, server: Server = DEFAULT, json: AsJson = False
) -> None:
    """Let failed operations wait again, at the end of their partition."""
    _choose(ids, queue, every)
    with connected(server) as client:
        settled = client.retry_operations(ids or None, queue=queue)
    _show(settled, "waits again", "wait again", json)


@app.command()
def discard(
    ids: Ids = None,
    queue: Queue = None,
    every: All = False,
    yes: Yes = False,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Give up failed operations, and their messages, for good."""
    _choose(ids, queue, every)
    which = _count(len(ids)) if ids else "all failed operations" + (f" of queue {queue}" if queue else "")
    confirm(f"Give up {which} and their messages for good?", yes)
    with connected(server) as client:
        settled = client.discard_operations(ids or None, queue=queue)
    _show(settled, "is given up", "are given up", json)


def _choose(ids: list[str] | None, queue: str | None, every: bool) -> None:
    if bool(ids) + (queue is not None) + every != 1:
        raise InvalidRequest("name the ids of failed operations, or their --queue, or say --all")


def _show(settled: SettledOperations, one: str, many: str, json: bool) -> None:
    if json:
        print_json(settled)
    else:
        echo(f"{_count(len(settled.done))} {one if len(settled.done) == 1 else many}.")
        for refused in settled.refused:
            echo(f"Not {refused.id}: {refused.error}")
    if settled.refused:
        raise typer.Exit(REFUSED)


def _count(count: int) -> str:
    return "1 operation" if count == 1 else f"{count} operations"
