"""`fairlane retention ...`"""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, print_json, print_table, shown_time

app = typer.Typer(help="Delete what retention rules cover, and see what went.", no_args_is_help=True)

Queue = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only of this queue.", show_default=False)]
Since = Annotated[str | None, typer.Option(help="A time like 2026-01-31T12:00:00Z; a day ago.", show_default=False)]
Until = Annotated[str | None, typer.Option(help="A time; now.", show_default=False)]
COLUMNS = ("queue", "rule", "deleted", "unread")


@app.command()
def run(server: Server = DEFAULT, json: AsJson = False) -> None:
    """Delete what the rules of all queues cover, now."""
    with connected(server) as client:
        deleted = client.run_retention()
    if json:
        print_json(deleted)
        return
    rows = [(one.queue, one.rule, one.messages, one.unread) for one in deleted]
    print_table(COLUMNS, rows, empty="Nothing is old enough to go.")


@app.command()
def history(
    queue: Queue = None, since: Since = None, until: Until = None, server: Server = DEFAULT, json: AsJson = False
) -> None:
    """List what rules deleted, by minute."""
    with connected(server) as client:
        went = client.retention_history(queue, since=since, until=until)
    if json:
        print_json(went)
        return
    rows = [(shown_time(one.at), one.queue, one.rule, one.messages, one.unread) for one in went]
    print_table(("minute", *COLUMNS), rows, empty="No rule deleted anything in this time.")
