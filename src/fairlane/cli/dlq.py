"""`fairlane dlq ...`"""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, Yes, confirm, echo, print_json, print_table, shown_time
from fairlane.errors import InvalidRequest

app = typer.Typer(help="List, replay and purge dead letters.", no_args_is_help=True)

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)]
Group = Annotated[str | None, typer.Option(help="Only those that this group gave up on.", show_default=False)]
Partition = Annotated[str | None, typer.Option(help="Only those of this partition.", show_default=False)]
Error = Annotated[str | None, typer.Option(help="Only those whose error contains this.", show_default=False)]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Of dead letters.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All of them, or all that the other options choose.")]


@app.command("list")
def list_letters(
    queue: Queue,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.")] = 100,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """List dead letters, latest failure first."""
    with connected(server) as client:
        letters = client.dead_letters(queue, group=group, partition=partition, error=error, limit=limit)
    if json:
        print_json(letters)
        return
    rows = [
        (
            letter.id,
            letter.partition,
            letter.group,
            shown_time(letter.failed_at),
            letter.attempts,
            letter.error,
            _cut(bytes(letter.raw).decode(errors="replace")),
            letter.replayed_as,
        )
        for letter in letters
    ]
    columns = ("id", "partition", "group", "failed", "attempts", "error", "data", "replayed as")
    print_table(columns, rows, empty=f"Queue {queue} has no dead letters.")


@app.command()
def replay(
    queue: Queue,
    ids: Ids = None,
    every: All = False,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Push dead letters again."""
    _choose(ids, every)
    with connected(server) as client:
        replayed = client.replay(queue, group=group, partition=partition, error=error, ids=ids or None)
    if json:
        print_json([{"id": id, "messageId": message} for id, message in replayed])
    else:
        echo(f"Replayed {_letters(len(replayed))} of {queue}.")


@app.command()
def purge(
    queue: Queue,
    ids: Ids = None,
    every: All = False,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    yes: Yes = False,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Delete dead letters for good."""
    _choose(ids, every)
    confirm(f"Delete {_letters(len(ids)) if ids else 'all dead letters'} of queue {queue} for good?", yes)
    with connected(server) as client:
        purged = client.purge(queue, group=group, partition=partition, error=error, ids=ids or None)
    if json:
        print_json({"queue": queue, "purged": purged})
    else:
        echo(f"Purged {_letters(purged)} of {queue}.")


def _choose(ids: list[str] | None, every: bool) -> None:
    if bool(ids) == every:
        raise InvalidRequest("name the ids of dead letters, or say --all")


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count} dead letters"


def _cut(text: str, *, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
