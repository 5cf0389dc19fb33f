"""`fairlane group ...`"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, Yes, confirm, echo, print_json, print_table
from fairlane.errors import InvalidRequest
from fairlane.model.group import Seek
from fairlane.model.names import QUEUE_MODE

app = typer.Typer(help="List, seek and delete consumer groups.", no_args_is_help=True)

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)]
Group = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help=f"Name of the group; {QUEUE_MODE} is the one of pops that name none.", show_default=False
    ),
]


@app.command("list")
def list_groups(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Only those of this queue.", show_default=False)
    ] = None,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """List the groups, one row for each queue they read."""
    with connected(server) as client:
        groups = client.groups(queue)
    if json:
        print_json(groups)
        return
    rows = [
        (group.queue, group.name, group.members, group.partitions_with_lag, group.total_lag, group.max_time_lag)
        for group in groups
    ]
    columns = ("queue", "group", "partitions", "behind in", "unfinished", "oldest, seconds")
    print_table(columns, rows, empty="There are no groups.")


@app.command()
def seek(
    queue: Queue,
    group: Group,
    to: Annotated[
        str, typer.Option(metavar="WHERE", help="beginning, end, a time like 2026-01-31T12:00:00Z, or a position.")
    ],
    partition: Annotated[str | None, typer.Option(help="Only in this partition.", show_default=False)] = None,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Send a group elsewhere: it goes on reading from there."""
    target = _target(to)
    with connected(server) as client:
        moved = client.seek(queue, group, target, partition=partition)
    if json:
        print_json({"queue": queue, "group": group, "partitions": moved})
    else:
        echo(f"Group {group} moved in {moved} {'partition' if moved == 1 else 'partitions'} of {queue}.")


@app.command()
def delete(queue: Queue, group: Group, yes: Yes = False, server: Server = DEFAULT, json: AsJson = False) -> None:
    """Forget a group and where it stood."""
    confirm(f"Delete group {group} of queue {queue} and forget where it stands?", yes)
    with connected(server) as client:
        partitions = client.delete_group(queue, group)
    if json:
        print_json({"queue": queue, "group": group, "partitions": partitions})
    else:
        echo(f"Group {group} of {queue} is gone.")


def _target(to: str) -> Seek:
    if to in ("beginning", "end"):
        return Seek("beginning" if to == "beginning" else "end")
    if to.isdecimal():
        return Seek("position", int(to))
    try:
        at = datetime.fromisoformat(to)
    except ValueError:
        raise InvalidRequest(
            f"--to is {to!r}; it must be beginning, end, a time like 2026-01-31T12:00:00Z or a position"
        ) from None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return Seek("time", since // timedelta(microseconds=1))
