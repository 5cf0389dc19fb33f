"""`fairlane journal ...`"""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.output import at, confirm
from fairlane.cli.verb import Client, Columns, Limit, Shown, Yes, arg, noun, verb

app = noun()

Id = Annotated[str, arg("ID", "Of an entry, as in the list.")]
_COLUMNS: Columns = {
    "id": "id",
    "kind": "kind",
    "queue or group": lambda one: one.queue or one.consumer_group,
    "partition": "partition",
    "messages": "messages",
    "accepted": at("accepted_at"),
    "error": "error",
}


@verb(app, "list", columns=_COLUMNS, empty="The journal has no failed entries.")
def list_entries(client: Client, limit: Limit = 100) -> Any:
    """List failed entries, oldest first."""
    return client.failed_entries(limit=limit)


@verb(app)
def retry(client: Client, id: Id) -> Shown:
    """Let an entry wait again, at the end of its partition."""
    entry = client.retry_entry(id)
    return Shown(entry, f"Entry {id} waits again, with {entry.messages} messages.")


@verb(app)
def discard(client: Client, id: Id, yes: Yes = False) -> Shown:
    """Give an entry up for good."""
    confirm(f"Give up entry {id} and its messages for good?", yes)
    entry = client.discard_entry(id)
    return Shown(entry, f"Discarded entry {id}, with {entry.messages} messages.")
