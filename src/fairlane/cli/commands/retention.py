"""`fairlane retention`: apply retention rules, and list their deletions."""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.toolkit.command import Client, CommandGroup, arg, client_command, columns_of, opt

app = CommandGroup("retention")

_COLUMNS = columns_of("queue rule deleted=messages unread")


@client_command(app, columns=_COLUMNS, empty="Nothing to delete.")
async def run(client: Client) -> Any:
    """Apply the retention rules of all queues now."""
    return await client.retention.run()


@client_command(app, columns=columns_of("minute=at") | _COLUMNS, empty="No rule deleted messages in this period.")
async def history(
    client: Client,
    queue: Annotated[str | None, arg("QUEUE", "Only this queue.")] = None,
    since: Annotated[str | None, opt("Start time like 2026-01-31T12:00:00Z; one day ago by default.")] = None,
    until: Annotated[str | None, opt("End time; now by default.")] = None,
) -> Any:
    """List the messages that retention rules deleted, per minute."""
    return await client.retention.history(queue, since=since, until=until)
