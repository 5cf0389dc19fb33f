"""`fairlane trace`: list the messages and notes of a trace."""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.toolkit.command import (
    Client,
    CommandGroup,
    Limit,
    Output,
    arg,
    client_command,
    columns_of,
    print_rows,
)
from fairlane.cli.toolkit.output import format_time
from fairlane.wire.traces import NamedTraceQuery, TraceNameQuery

app = CommandGroup("trace")

_NAMES = columns_of(
    "name=trace_name notes=trace_count messages=message_count seen", seen=lambda one: format_time(one.last_seen)
)
_NOTES = columns_of(
    "at=created_at queue=queue_name message=transaction_id event=event_type group data",
    data=lambda one: bytes(one.data).decode(errors="replace"),
)
_MESSAGES = columns_of("created=created_at queue partition status transaction_id partition_id")


@client_command(app, "list", columns=_NAMES, rows="trace_names", empty="There are no notes.")
async def list_names(client: Client, limit: Limit = 50) -> Any:
    """List the names of trace notes, most recently used first."""
    return await client.traces.names(TraceNameQuery(limit=limit))


@client_command(app)
async def notes(
    client: Client,
    name: Annotated[str, arg("NAME", "Name of the notes, as `fairlane trace list` shows it.")],
    limit: Limit = 100,
) -> Output:
    """List the trace notes with a name in all queues, oldest first."""
    found = await client.traces.named(name, NamedTraceQuery(limit=limit))
    return Output(found, lambda: print_rows(_NOTES, found.traces, empty=f"There are no notes named {name}."))


@client_command(app, columns=_MESSAGES, empty="This trace has no messages.")
async def show(
    client: Client, trace_id: Annotated[str, arg("TRACE_ID", "Trace id of the messages, a UUID.")], limit: Limit = 100
) -> Any:
    """List the messages of a trace in all queues, oldest first."""
    return (await client.messages.page(trace_id=trace_id, limit=limit)).messages[::-1]
