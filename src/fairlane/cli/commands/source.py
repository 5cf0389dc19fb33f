"""`fairlane source`: list and delete the sources of pollers."""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.toolkit.command import Client, CommandGroup, Output, Yes, arg, client_command, columns_of, deleted
from fairlane.cli.toolkit.output import confirm

app = CommandGroup("source")

_COLUMNS = columns_of("name records cursor read=committed_at swept=swept_at")


@client_command(app, "list", columns=_COLUMNS, empty="There are no sources.")
async def list_sources(client: Client) -> Any:
    """List the sources and the position of each."""
    return await client.sources.all()


@client_command(app)
async def delete(client: Client, name: Annotated[str, arg("NAME", "Name of the source.")], yes: Yes = False) -> Output:
    """Delete the position and the known records of a source.

    The next poll reads the source from the beginning and treats every record as new.
    """
    confirm(f"Delete source {name} and its known records?", yes)
    return deleted("source", name, await client.sources.delete(name))
