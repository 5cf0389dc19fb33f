"""`fairlane group ...`"""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.output import confirm, counted, micros
from fairlane.cli.verb import Client, Noun, QueueName, Shown, Yes, arg, columns_of, opt, verb
from fairlane.errors import InvalidRequest
from fairlane.model.group import Seek
from fairlane.model.names import QUEUE_MODE

app = Noun("group")

Group = Annotated[str, arg("GROUP", f"Name of the group; {QUEUE_MODE} is the one of pops that name none.")]
_COLUMNS = columns_of(
    "queue group=name partitions=members behind_in=partitions_with_lag unfinished=total_lag "
    "oldest,_seconds=max_time_lag"
)


@verb(app, "list", columns=_COLUMNS, empty="There are no groups.")
async def list_groups(
    client: Client, queue: Annotated[str | None, arg("QUEUE", "Only those of this queue.")] = None
) -> Any:
    """List the groups, one row for each queue they read."""
    return await client.groups.list(queue)


@verb(app)
async def seek(
    client: Client,
    queue: QueueName,
    group: Group,
    to: Annotated[str, opt("beginning, end, a time like 2026-01-31T12:00:00Z, or a position.", metavar="WHERE")],
    partition: Annotated[str | None, opt("Only in this partition.")] = None,
    preview: Annotated[bool, opt("Only say what it would do.", "--preview")] = False,
) -> Shown:
    """Send a group elsewhere: it goes on reading from there."""
    if preview:
        if partition is not None:
            raise InvalidRequest("--preview counts in all partitions; leave --partition out")
        found = await client.groups.preview_seek(queue, group, _target(to))
        text = f"{counted(found.again, 'message')} would come again, {found.skipped} would be skipped."
        return Shown(
            found, text if found.complete else f"{text} Counted in {found.partitions} partitions; there are more."
        )
    moved = await client.groups.seek(queue, group, _target(to), partition=partition)
    shown = {"queue": queue, "group": group, "partitions": moved}
    return Shown(shown, f"Group {group} moved in {counted(moved, 'partition')} of {queue}.")


@verb(app)
async def delete(client: Client, queue: QueueName, group: Group, yes: Yes = False) -> Shown:
    """Forget a group and where it stood."""
    confirm(f"Delete group {group} of queue {queue} and forget where it stands?", yes)
    partitions = await client.groups.delete(queue, group)
    return Shown({"queue": queue, "group": group, "partitions": partitions}, f"Group {group} of {queue} is gone.")


def _target(to: str) -> Seek:
    if to in ("beginning", "end"):
        return Seek("beginning" if to == "beginning" else "end")
    if to.isdecimal():
        return Seek("position", int(to))
    return Seek("time", micros(to, "--to", "beginning, end, a time like 2026-01-31T12:00:00Z or a position"))
