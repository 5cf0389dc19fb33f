"""`fairlane retention ...`"""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.verb import Client, Noun, arg, columns_of, opt, verb

app = Noun("retention")

_COLUMNS = columns_of("queue rule deleted=messages unread")


@verb(app, columns=_COLUMNS, empty="Nothing is old enough to go.")
async def run(client: Client) -> Any:
    """Delete what the rules of all queues cover, now."""
    return await client.retention.run()


@verb(app, columns=columns_of("minute=at") | _COLUMNS, empty="No rule deleted anything in this time.")
async def history(
    client: Client,
    queue: Annotated[str | None, arg("QUEUE", "Only of this queue.")] = None,
    since: Annotated[str | None, opt("A time like 2026-01-31T12:00:00Z; a day ago.")] = None,
    until: Annotated[str | None, opt("A time; now.")] = None,
) -> Any:
    """List what rules deleted, by minute."""
    return await client.retention.history(queue, since=since, until=until)
