"""`fairlane audit ...`"""

from __future__ import annotations

from typing import Annotated, Any

from fairlane.cli.verb import Client, Limit, Noun, Shown, columns_of, opt, verb

app = Noun("audit")

_COLUMNS = columns_of("number when=at caller action target outcome source")


@verb(app, "list", columns=_COLUMNS, empty="Nothing was noted yet.")
async def list_entries(
    client: Client,
    before: Annotated[int | None, opt("Entries below this number.", least=1)] = None,
    limit: Limit = 100,
) -> Any:
    """List who did what, newest first: administrative actions and refusals."""
    return await client.audit.list(before=before, limit=limit)


@verb(app)
async def verify(client: Client) -> Shown:
    """Reckon the hash of every entry again: none was changed, and none is missing."""
    found = await client.audit.verify()
    if not found.whole:
        return Shown(found, f"The audit log was changed: {found.error}.", 1)
    text = f"{found.entries} entries, {found.first} to {found.last}, are as they were written. The last hash is "
    return Shown(found, f"{text}{found.head}." if found.entries else "There are no entries yet.")
