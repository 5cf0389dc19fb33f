"""`fairlane source ...`"""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.output import confirm
from fairlane.cli.verb import Client, Noun, Shown, Yes, arg, columns_of, verb

app = Noun("source")

_COLUMNS = columns_of("name records cursor read=committed_at swept=swept_at")


@verb(app, "list", columns=_COLUMNS, empty="There are no sources.")
async def list_sources(client: Client) -> Any:
    """List the sources, and how far each was read."""
    return await client.sources.list()


@verb(app)
async def delete(client: Client, name: Annotated[str, arg("NAME", "Name of the source.")], yes: Yes = False) -> Shown:
    """Forget how far a source was read, and its records: the next poll reads it from the beginning, as if all were
    new."""
    confirm(f"Forget source {name} and what is known of its records?", yes)
    deleted = await client.sources.delete(name)
    text = f"Source {name} is gone." if deleted else f"There is no source {name}."
    return Shown({"name": name, "deleted": deleted}, text, 0 if deleted else 1)
