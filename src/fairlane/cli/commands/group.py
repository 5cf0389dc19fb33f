"""`fairlane group`: list, seek and delete consumer groups."""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.toolkit.command import (
    Client,
    CommandGroup,
    Output,
    QueueName,
    Yes,
    arg,
    client_command,
    columns_of,
    opt,
)
from fairlane.cli.toolkit.output import confirm, parse_time, plural
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.group import Seek
from fairlane.model.names import QUEUE_MODE

app = CommandGroup("group")

Group = Annotated[str, arg("GROUP", f"Name of the group. Pops without --group use {QUEUE_MODE}.")]
_COLUMNS = columns_of(
    "queue group=name partitions=members behind_in=partitions_with_lag unfinished=total_lag "
    "oldest,_seconds=max_time_lag"
)


@client_command(app, "list", columns=_COLUMNS, empty="There are no groups.")
async def list_groups(
    client: Client, queue: Annotated[str | None, arg("QUEUE", "Only groups of this queue.")] = None
) -> Any:
    """List consumer groups, one row for each queue that a group reads."""
    return await client.groups.all(queue)


@client_command(app)
async def seek(
    client: Client,
    queue: QueueName,
    group: Group,
    to: Annotated[
        str, opt("Target: beginning, end, a time like 2026-01-31T12:00:00Z, or a position.", metavar="WHERE")
    ],
    partition: Annotated[str | None, opt("Only in this partition.")] = None,
    preview: Annotated[bool, opt("Only show how many messages the seek would replay and skip.", "--preview")] = False,
) -> Output:
    """Move a consumer group back or forward in a queue, to replay or skip messages."""
    if preview:
        if partition is not None:
            raise InvalidRequest("--preview counts all partitions; leave out --partition")
        found = await client.groups.preview_seek(queue, group, _seek_target(to))
        text = f"{plural(found.again, 'message')} would be delivered again, {found.skipped} would be skipped."
        return Output(
            found, text if found.complete else f"{text} Only the first {found.partitions} partitions were counted."
        )
    moved = await client.groups.seek(queue, group, _seek_target(to), partition=partition)
    shown = {"queue": queue, "group": group, "partitions": moved}
    return Output(shown, f"Moved group {group} in {plural(moved, 'partition')} of {queue}.")


@client_command(app)
async def delete(client: Client, queue: QueueName, group: Group, yes: Yes = False) -> Output:
    """Delete a consumer group of a queue, with its position. If it pops again, it starts over."""
    if all(one.name != group for one in await client.groups.all(queue)):
        raise NotFound(f"queue {queue!r} has no group {group!r}")
    confirm(f"Delete group {group} of queue {queue} and its position?", yes)
    partitions = await client.groups.delete(queue, group)
    return Output({"queue": queue, "group": group, "partitions": partitions}, f"Deleted group {group} of {queue}.")


def _seek_target(to: str) -> Seek:
    if to in ("beginning", "end"):
        return Seek("beginning" if to == "beginning" else "end")
    if to.isdecimal():
        return Seek("position", int(to))
    return Seek("time", parse_time(to, "--to", "beginning, end, a time like 2026-01-31T12:00:00Z or a position"))
