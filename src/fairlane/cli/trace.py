"""`fairlane trace ...`"""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.output import shown_time
from fairlane.cli.verb import Client, Limit, Noun, Shown, arg, columns_of, print_rows, verb
from fairlane.wire.traces import NamedTraceQuery, TraceNameQuery

app = Noun("trace")

_NAMES = columns_of(
    "name=trace_name notes=trace_count messages=message_count seen", seen=lambda one: shown_time(one.last_seen)
)
_NOTES = columns_of(
    "at=created_at queue=queue_name message=transaction_id event=event_type group data",
    data=lambda one: bytes(one.data).decode(errors="replace"),
)
_MESSAGES = columns_of("created=created_at queue partition status transaction_id partition_id")


@verb(app, "list", columns=_NAMES, rows="trace_names", empty="No consumer noted anything.")
async def list_names(client: Client, limit: Limit = 50) -> Any:
    """List the names that consumers gave to their notes, latest seen first."""
    return await client.traces.names(TraceNameQuery(limit=limit))


@verb(app)
async def notes(client: Client, name: Annotated[str, arg("NAME", "Of the notes.")], limit: Limit = 100) -> Shown:
    """List the notes of a name over all queues, oldest first."""
    found = await client.traces.named(name, NamedTraceQuery(limit=limit))
    return Shown(found, lambda: print_rows(_NOTES, found.traces, empty=f"There are no notes {name}."))


@verb(app, columns=_MESSAGES, empty="No message belongs to this trace.")
async def show(
    client: Client, trace_id: Annotated[str, arg("TRACE_ID", "Of messages: a UUID.")], limit: Limit = 100
) -> Any:
    """List the messages of a trace over all queues, oldest first."""
    return (await client.messages.list(trace_id=trace_id, limit=limit)).messages[::-1]
