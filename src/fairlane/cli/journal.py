"""`fairlane journal ...`"""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, Yes, confirm, echo, print_json, print_table, shown_time

app = typer.Typer(help="Failed entries of the broker's journal, which the store refused.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="Of an entry, as in the list.", show_default=False)]


@app.command("list")
def list_entries(
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.")] = 100,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """List failed entries, oldest first."""
    with connected(server) as client:
        entries = client.failed_entries(limit=limit)
    if json:
        print_json(entries)
        return
    rows = [
        (
            one.id,
            one.kind,
            one.queue or one.consumer_group,
            one.partition,
            one.messages,
            shown_time(one.accepted_at),
            one.error,
        )
        for one in entries
    ]
    columns = ("id", "kind", "queue or group", "partition", "messages", "accepted", "error")
    print_table(columns, rows, empty="The journal has no failed entries.")


@app.command()
def retry(id: Id, server: Server = DEFAULT, json: AsJson = False) -> None:
    """Let an entry wait again, at the end of its partition."""
    with connected(server) as client:
        entry = client.retry_entry(id)
    if json:
        print_json(entry)
    else:
        echo(f"Entry {id} waits again, with {entry.messages} messages.")


@app.command()
def discard(id: Id, yes: Yes = False, server: Server = DEFAULT, json: AsJson = False) -> None:
    """Give an entry up for good."""
    confirm(f"Give up entry {id} and its messages for good?", yes)
    with connected(server) as client:
        entry = client.discard_entry(id)
    if json:
        print_json(entry)
    else:
        echo(f"Discarded entry {id}, with {entry.messages} messages.")
